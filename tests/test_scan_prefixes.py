"""Prefixes of launchers, schedulers and loggers are told from the message, and say who printed it when."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.scan.prefixes import MAX_PREFIX_BYTES, Part, printer_of, read_prefix
from ingest.scan.times import read_time

_MESSAGE = "step: 54  loss:  2.77"
_PREFIXES: dict[str, dict[str, str]] = {
    "[rank3]: ": {"rank": "3"},
    "[rank3]:[titan] 2024-04-09 20:45:10,250 - root - INFO - ": {"rank": "3", "level": "INFO"},
    "[Rank 2] ": {"rank": "2"},
    " 3: ": {"rank": "3"},
    "12: 2024-05-01 10:00:00 INFO ": {"rank": "12", "time": "2024-05-01 10:00:00"},
    "[default7]:": {"local_rank": "7"},
    "[default7]:[2022-05-01 10:00:00,123] [INFO] [logging.py:69:log_dist] [Rank 0] ": {"rank": "0"},
    "[1,3]<stdout>:": {"rank": "3"},
    "[1,mpirank:3,algo-2]<stderr>:": {"rank": "3", "host": "algo-2"},
    "(worker pid=123) ": {"pid": "123"},
    "(RayTrainWorker pid=123, ip=10.0.0.3) ": {"pid": "123", "host": "10.0.0.3"},
    "node-07: ": {"host": "node-07"},
    "[gpu12:0/4] 2024-09-03 06:20:10,125 (trainer:701) WARNING: ": {"rank": "0", "world": "4"},
    "2024-03-08 19:15:04,400 INFO [trainer.py:512] (2/4) ": {"rank": "2", "world": "4"},
    "09/22/2024 05:10:06 [INFO|DP=1|PP=3|TP=0|node-1]: ": {"dp": "1", "pp": "3", "tp": "0"},
    "gpu-12:2345:2399 [3] NCCL INFO ": {"host": "gpu-12", "local_rank": "3"},
    "[pod/trainer-0/pytorch] ": {"host": "trainer-0"},
    "trainer-1  | ": {"host": "trainer-1"},
    "2024-05-01T10:00:00.123456789Z stdout F ": {"time": "2024-05-01T10:00:00.123456789Z"},
    "Nov 30 14:43:34 node-3 train[881]: ": {"host": "node-3", "pid": "881"},
    "2026-11-30T14:43:34.12+00:00 node-3 kernel: [680111.125000] ": {"host": "node-3"},
    "0|yolo     | ": {},
    "I0714 09:41:05.125000  5120 solver.cpp:88] ": {"source": "solver.cpp"},
    "[rank3]:[E1130 14:43:34.123 ProcessGroupNCCL.cpp:616] [Rank 3] ": {"rank": "3", "level": "E"},
    "2024-05-02 10:46:41.123 | INFO     | trainers.common:on_log:231 - ": {"level": "INFO"},
    "INFO:root:": {"source": "root"},
    "2021-10-29 09:58:36,440 - mmdet - INFO - ": {"source": "mmdet"},
    "[NeMo I 2024-01-01 10:00:00 exp_manager:386] ": {"source": "exp_manager"},
    "[08/21 07:15:40] ppdet.engine INFO: ": {"time": "08/21 07:15:40", "source": "ppdet.engine"},
    "2021-06-24 11:36:51,758-INFO: ": {"level": "INFO"},
    "1764470000250 ": {"time": "1764470000250"},
    "[INFO|trainer.py:123] 2024-05-01 10:00:00,123 >> ": {"source": "trainer.py"},
    "| Training Device=xla:0/7 ": {"rank": "7"},
    "13129.7s\t202\t": {},
    "[2026-09-26:07:44:49:INFO:root:__call__] ": {"level": "INFO"},
    "10.0.0.1: ": {"host": "10.0.0.1"},
    "2026-01-05 15:21:22,065|INFO|": {"level": "INFO"},
    "[ INFO : 2026-01-13 01:09:33,989 ] - ": {"level": "INFO"},
    "Mon Nov 30 14:43:34 2026[1,3]<stdout>:": {"rank": "3", "time": "Mon Nov 30 14:43:34 2026"},
}


@pytest.mark.parametrize("front", _PREFIXES)
def test_a_known_prefix_ends_where_the_message_begins_and_says_who_printed_it(front: str) -> None:
    message = "NCCL INFO comm 0x1 rank 3" if "NCCL INFO" in front else _MESSAGE
    line = (front.removesuffix("NCCL INFO ") + message).encode()
    prefix = read_prefix(line)
    said = {what.value: field.of(line) for what in Part if (field := prefix.get(what))}
    assert line[prefix.end :].decode() == message
    assert said | _PREFIXES[front] == said


@pytest.mark.parametrize(
    ("front", "rank"),
    [
        ("[default7]:", None),
        ("3: [default7]:", None),
        ("[1,3]<stdout>:[default7]:", None),
        ("3: [default7]:[rank31]: ", "31"),
        ("[1,3]<stdout>:gpu-12:2345:2399 [0] ", "3"),
        ("3: ", "3"),
    ],
)
def test_the_number_of_a_node_is_no_rank_and_neither_is_a_local_rank(front: str, rank: str | None) -> None:
    line = (front + ("NCCL INFO comm 0x1" if "gpu-12" in front else _MESSAGE)).encode()
    printer = printer_of(read_prefix(line), line)
    assert (None if printer is None else printer.of(line)) == rank


@pytest.mark.parametrize(
    "line",
    [
        "3: loss 2.5",
        "100: train loss 2.3, val loss 2.2",
        "1250: 210500000000.000000, 21060000000.000000 avg, 0.001000 rate",
        "[3] loss 2.5",
        "top-1: 56.2",
        "top_1  | 56.2",
        "| epoch 027 | loss 6.343 |",
        "{'loss': 2.25, 'grad_norm': 1.3}",
        "step 3/10 | loss 2",
        "Epoch: 7/80, step: 3/49, loss: 1.2",
        "1 7.812500238418579",
        "s:100 tel:3.2",
        "iter 4490: loss 3.8125",
    ],
)
def test_a_record_without_a_prefix_keeps_its_front(line: str) -> None:
    assert read_prefix(line.encode()).end == 0


def test_the_section_of_a_record_is_no_logger() -> None:
    line = b"2024-10-21 15:05:20 | INFO | valid | epoch 002 | loss 8.25"
    assert line[read_prefix(line).end :] == b"valid | epoch 002 | loss 8.25"


def test_a_plain_word_behind_a_time_is_no_host() -> None:
    line = b"2024-06-17 13:01:30 iter 4490: loss 3.8125"
    assert line[read_prefix(line).end :] == b"iter 4490: loss 3.8125"


@settings(max_examples=100, deadline=None)
@given(
    parts=st.lists(
        st.sampled_from([*_PREFIXES, "[", "(", "rank", ":", " ", "1"]) | st.text(max_size=9), max_size=9
    )
)
def test_any_front_gives_places_within_the_line(parts: list[str]) -> None:
    line = "".join(parts).encode("utf-8", "replace")
    prefix = read_prefix(line)
    assert 0 <= prefix.end <= min(len(line), MAX_PREFIX_BYTES)
    assert all(0 <= field.start <= field.stop <= prefix.end for field in prefix.fields)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2024-04-09 20:45:10,250", 1712695510.25),
        ("2026-06-28T16:08:16.958Z", 1782662896.958),
        ("2026-06-28T18:08:16.958+02:00", 1782662896.958),
        ("2026/06/28 16:08:16", 1782662896.0),
        ("06/28/2026 16:08:16", 1782662896.0),
        ("28.06.2026 16:08:16", 1782662896.0),
        ("06/28/2026 04:08:16 PM", 1782662896.0),
        ("Sun Jun 28 16:08:16 2026", 1782662896.0),
        ("20260628 16:08:16.5", 1782662896.5),
        ("1782662896", 1782662896.0),
        ("1782662896958", 1782662896.958),
        ("Jun 28 16:08:16", None),
        ("06/28 16:08:16", None),
        ("26/06/28 16:08:16", None),
        ("0628 16:08:16.206111", None),
        ("2026-13-28 16:08:16", None),
        ("16:08:16", None),
        ("680111.125000", None),
    ],
)
def test_a_time_is_read_where_its_year_is_known(text: str, seconds: float | None) -> None:
    assert read_time(text) == seconds
