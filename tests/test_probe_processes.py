"""The probe in processes that fork, crash, are ended or fill the disk: they end as they would without it."""

from __future__ import annotations

import signal
import textwrap
from pathlib import Path
from typing import Any

import firstfault

from .probe_builders import Service, lines_of, run_job, started_job

START = """
import os, signal, sys, threading, time
import firstfault
from firstfault import ProbeConfig
from firstfault.emitters import EmitterConfig
config = ProbeConfig(heartbeat_s=3600.0, emitter=EmitterConfig(flush_s=0.05))
probe = firstfault.Probe(run="r", rank=0, sink=sys.argv[1], config=config)
probe.at("forward", 5)
"""


def job(body: str) -> str:
    return START + textwrap.dedent(body)


def events(path: Path, kind: str) -> list[dict[str, Any]]:
    return [line for line in lines_of(path) if line.get("event") == kind]


def test_a_job_that_ends_without_closing_the_probe_says_that_it_ended(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    ran = run_job(job("probe.step(1.0)"), str(path))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert [line["loss"] for line in lines_of(path) if "loss" in line] == [1.0]
    assert lines_of(path)[-1]["event"] == "run_end"


def test_a_crash_leaves_its_last_words_and_no_end_of_the_run(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    ran = run_job(
        job("probe.step(1.0)\nprobe.at('backward', 7)\nraise RuntimeError('CUDA error')"), str(path)
    )
    (words,) = events(path, "hardware")
    assert ran.returncode == 1
    assert "RuntimeError: CUDA error" in ran.stderr
    assert (words["iteration"], words["phase"], words["code"]) == (7, "backward", "RuntimeError")
    assert events(path, "run_end") == []
    (verdict,) = firstfault.replay(path)
    assert "rank 0 was ended by RuntimeError in backward: CUDA error" in str(verdict)


def test_an_exception_that_passes_a_close_is_told_after_it_and_the_run_did_not_end(tmp_path: Path) -> None:
    program = job("""
    try:
        probe.step(1.0)
        raise KeyError("missing")
    finally:
        probe.close()
    """)
    done = run_job(program, str(tmp_path / "run.jsonl"))
    assert done.returncode == 1
    (words,) = events(tmp_path / "run.jsonl", "hardware")
    assert (words["code"], words["ended"]) == ("KeyError", True)
    assert events(tmp_path / "run.jsonl", "run_end") == []


def test_an_exception_that_is_caught_after_a_close_was_no_crash(tmp_path: Path) -> None:
    program = job("""
    try:
        raise StopIteration
    except StopIteration:
        probe.close()
    """)
    assert run_job(program, str(tmp_path / "run.jsonl")).returncode == 0
    assert events(tmp_path / "run.jsonl", "hardware") == []


def test_a_thread_that_dies_is_told_and_the_run_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    body = """
    def die():
        raise KeyError("x")
    thread = threading.Thread(target=die, name="loader")
    thread.start()
    thread.join()
    probe.step(1.0)
    """
    ran = run_job(job(body), str(path))
    assert ran.returncode == 0
    assert "in thread loader" in events(path, "hardware")[0]["text"]
    assert len(events(path, "run_end")) == 1


def test_sigterm_lets_out_what_waits_and_then_ends_the_job(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with started_job(job("probe.step(1.0)\nprint('up', flush=True)\ntime.sleep(60)"), str(path)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == -signal.SIGTERM
    assert [line["loss"] for line in lines_of(path) if "loss" in line] == [1.0]
    assert events(path, "hardware")[0]["code"] == "SIGTERM"


def test_sigterm_ends_a_job_whose_main_thread_never_comes_back(tmp_path: Path) -> None:
    body = """
    import ctypes
    libc = ctypes.CDLL(None)
    mutex = ctypes.create_string_buffer(256)
    libc.pthread_mutex_lock(mutex)
    probe.step(1.0)
    # a signal that comes before the main thread is stuck would be handled by it
    threading.Timer(0.3, print, ("up",), {"flush": True}).start()
    libc.pthread_mutex_lock(mutex)  # for ever: no signal interrupts it
    """
    with started_job(job(body), str(tmp_path / "run.jsonl")) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == -signal.SIGTERM


def test_a_handler_of_the_trainer_is_left_alone(tmp_path: Path) -> None:
    body = """
    def mine(number, frame):
        probe.step(2.0)
        sys.exit(7)
    signal.signal(signal.SIGTERM, mine)
    print("up", flush=True)
    time.sleep(60)
    """
    path = tmp_path / "run.jsonl"
    with started_job(job(body), str(path)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 7
    assert [line["loss"] for line in lines_of(path) if "loss" in line] == [2.0]


def test_a_forked_child_sends_what_it_logs_and_nothing_by_itself(tmp_path: Path) -> None:
    body = """
    probe.step(1.0)
    for is_silent in (True, False):
        child = os.fork()
        if child == 0:
            if not is_silent:
                probe.log(iteration=0, child_loss=2.0)
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    assert os.waitpid(child, 0)[1] == signal.SIGTERM
    time.sleep(3)  # longer than the sending thread waits for a SIGTERM of its own
    probe.step(1.0)
    """
    path = tmp_path / "run.jsonl"
    ran = run_job(job(body), str(path))
    assert (ran.returncode, ran.stderr) == (0, "")
    found = lines_of(path)
    assert [line["iteration"] for line in found if "loss" in line] == [0, 1]
    assert len([line for line in found if "child_loss" in line]) == 1
    assert [len(events(path, kind)) for kind in ("run_start", "run_end", "hardware")] == [1, 1, 0]


def test_children_of_multiprocessing_send_all_they_log(tmp_path: Path) -> None:
    program = """
import multiprocessing, sys
import firstfault

def train(rank, sink):
    probe = firstfault.Probe(run="r", rank=rank, world_size=2, sink=sink)
    probe.step(float(rank))

if __name__ == "__main__":
    for method in ("fork", "spawn"):
        context = multiprocessing.get_context(method)
        sink = f"{sys.argv[1]}/{method}.jsonl"
        children = [context.Process(target=train, args=(rank, sink)) for rank in (0, 1)]
        for child in children:
            child.start()
        for child in children:
            child.join()
            assert child.exitcode == 0
"""
    script = tmp_path / "train.py"
    script.write_text(program, encoding="utf-8")
    ran = run_job(f"import runpy, sys; sys.argv = [{str(script)!r}, {str(tmp_path)!r}]\n" + _RUN_MAIN)
    assert ran.returncode == 0, ran.stderr
    for method in ("fork", "spawn"):
        for rank in (0, 1):
            found = lines_of(tmp_path / f"{method}-rank{rank}.jsonl")
            assert [line["loss"] for line in found if "loss" in line] == [float(rank)]


_RUN_MAIN = """
import importlib.util
spec = importlib.util.spec_from_file_location("__mp_main__", sys.argv[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_a_disk_that_is_full_costs_records_that_are_counted_and_torn_lines_are_none(tmp_path: Path) -> None:
    body = """
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    for iteration in range(5000):
        probe.step(1.0)
    probe.close()
    print(probe.counts.sent, probe.counts.dropped)
    """
    path = tmp_path / "run.jsonl"
    ran = run_job(job(body), str(path))
    sent, dropped = map(int, ran.stdout.split())
    assert ran.returncode == 0
    assert len(lines_of(path)) == sent
    assert dropped > 4000
    assert sent + dropped >= 5000
    assert "File too large" in ran.stderr


def test_a_device_that_is_full_hurts_nobody(tmp_path: Path) -> None:
    ran = run_job(job("for _ in range(100):\n    probe.step(1.0)\nprint('trained')"), "/dev/full")
    assert (ran.returncode, ran.stdout) == (0, "trained\n")
    assert "of telemetry were lost" in ran.stderr


def test_what_an_ended_process_could_not_send_waits_on_disk_in_order(tmp_path: Path) -> None:
    with Service() as service:
        gone = service.url
    body = "for _ in range(50):\n    probe.step(1.0)"
    ran = run_job(job(body), gone, FIRSTFAULT_SPILL=str(tmp_path))
    assert ran.returncode == 0
    assert "is sent at the next start" in ran.stderr
    # A try to send in between begins another file; together they are what waits, in the order of their names.
    segments = sorted(tmp_path.rglob("*.jsonl"))
    assert len({segment.parent for segment in segments}) == 1
    kept = [line for segment in segments for line in lines_of(segment)]
    assert [line["iteration"] for line in kept if "loss" in line] == list(range(50))
    assert kept[-1]["event"] == "run_end"
