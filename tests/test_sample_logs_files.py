"""The sample logs hold what their manifest states."""

from __future__ import annotations

import gzip
import json
import math
import statistics
import tomllib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from detectors.verdict import to_json
from firstfault.drill import SCENARIOS, DrillConfig, plan
from firstfault.drill.samples import growth_onset
from firstfault.telemetry import Event, EventKind, Record
from firstfault.wire import Defaults, interpret
from service.pipeline import Pipeline

from .sample_builders import batches, lines_of

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "sample_logs"
MANIFEST: Sequence[Mapping[str, Any]] = tomllib.loads((FOLDER / "manifest.toml").read_text())["logs"]
LABELS = {"healthy", "gradient_explosion", "nan", "silent_drift", "stall"}
MAX_BYTES = 2_000_000
NAMES = [entry["name"] for entry in MANIFEST]
Row = list[Any]


@dataclass(frozen=True, slots=True)
class Log:
    """One sample log, decoded. ``rows[(attempt, iteration)]`` are the records in rank order."""

    truth: Mapping[str, Any]
    rows: Mapping[tuple[int, int], Sequence[Record]]
    events: Sequence[Event]
    rejections: int

    def row(self, iteration: int, metric: str, attempt: int = 0) -> Row:
        return [record.metrics.get(metric) for record in self.rows[attempt, iteration]]

    def curve(self, metric: str) -> list[float]:
        """The mean over ranks, over all iterations of the first attempt."""
        return [
            statistics.fmean(record.metrics[metric] for record in row)
            for (attempt, _), row in self.rows.items()
            if attempt == 0
        ]

    def first_odd(self, metric: str) -> tuple[int, list[int]] | None:
        """First iteration at which ranks differ in a metric, and the ranks in the minority."""
        for (_, iteration), row in self.rows.items():
            values = [record.metrics.get(metric) for record in row]
            if len(set(values)) > 1:
                return iteration, [
                    rank for rank, value in enumerate(values) if values.count(value) * 2 < len(values)
                ]
        return None


@cache  # small logs, each read by several tests
def log_of(name: str) -> Log:
    truth = next(entry for entry in MANIFEST if entry["name"] == name)
    rows: dict[tuple[int, int], list[Record]] = defaultdict(list)
    events: list[Event] = []
    rejections = 0
    with gzip.open(FOLDER / truth["file"], "rt", encoding="utf-8") as lines:
        for line in lines:
            meant = interpret(json.loads(line), Defaults())
            rejections += len(meant.rejections)
            if isinstance(meant.result, Record):
                rows[meant.result.attempt, meant.result.iteration].append(meant.result)
            elif meant.result is not None:
                events.append(meant.result)
    return Log(truth, rows, events, rejections)


def test_there_is_one_log_of_every_scenario_and_nothing_else() -> None:
    assert list(SCENARIOS) == NAMES
    files = {path.name for path in FOLDER.iterdir()}
    assert files == {entry["file"] for entry in MANIFEST} | {"manifest.toml", "README.md"}
    assert all((FOLDER / entry["file"]).stat().st_size < MAX_BYTES for entry in MANIFEST)


@pytest.mark.parametrize("name", NAMES)
def test_the_manifest_agrees_with_the_plan_of_its_own_command(name: str) -> None:
    truth = next(entry for entry in MANIFEST if entry["name"] == name)
    planned = plan(DrillConfig(scenario=name, seed=truth["seed"]))
    assert truth["label"] == planned.scenario.label
    assert truth["ranks"] == ([] if planned.fault_rank is None else [planned.fault_rank])
    assert truth.get("phase") == planned.scenario.phase
    assert truth["command"] == (
        f"firstfault drill --scenario {name} --seed {truth['seed']} --out sample_logs/{truth['file']}"
    )
    assert truth["label"] in LABELS
    if truth["label"] == "healthy":
        assert "iteration" not in truth
    elif truth["label"] != "gradient_explosion":
        assert truth["iteration"] == planned.fault_iteration


@pytest.mark.parametrize("name", NAMES)
def test_every_line_is_understood_and_every_rank_reports_every_iteration(name: str) -> None:
    log = log_of(name)
    assert log.rejections == 0
    assert all([record.rank for record in row] == list(range(8)) for row in log.rows.values())
    last = [iteration for attempt, iteration in log.rows][-1]
    assert {iteration for _, iteration in log.rows} == set(range(last + 1))
    assert log.events[0].kind is EventKind.RUN_START
    if name == "hang":  # it never ended: the ranks wait in the iteration behind the last
        assert (log.events[-1].kind, log.events[-1].iteration) == (EventKind.HEARTBEAT, last + 1)
    else:
        assert (log.events[-1].kind, log.events[-1].iteration) == (EventKind.RUN_END, last)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "explosion"])
def test_the_loss_falls_noisily_as_that_of_a_real_run(name: str) -> None:
    log = log_of(name)
    onset = log.truth.get("iteration", len(log.rows))
    loss = log.curve("loss")[:onset]
    early, late = statistics.fmean(loss[:10]), statistics.fmean(loss[-10:])
    assert late < 0.85 * early
    assert min(loss[-10:]) != max(loss[-10:])
    steps = [after - before for before, after in pairwise(loss)]
    assert sum(step > 0 for step in steps) > len(steps) / 5  # noise: it rises at many single steps
    assert len(log.rows) >= 500


def test_the_explosion_from_the_start_never_learns() -> None:
    log = log_of("explosion")
    loss = log.curve("loss")
    assert max(loss[: log.truth["iteration"]]) < 1.1 * loss[0]
    assert statistics.fmean(loss[-10:]) > 10 * loss[0]


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("nan")])
def test_the_first_non_finite_loss_is_on_the_stated_rank_at_the_stated_iteration(name: str) -> None:
    log = log_of(name)
    at, ranks = log.truth["iteration"], log.truth["ranks"]
    for iteration in range(at):
        assert all(map(math.isfinite, log.row(iteration, "loss") + log.row(iteration, "grad_norm")))
    for metric in ("loss", "local_grad_norm"):
        assert [rank for rank, value in enumerate(log.row(at, metric)) if not math.isfinite(value)] == ranks
    assert all(math.isnan(value) for value in log.row(at, "grad_norm"))
    assert all(math.isnan(value) for value in log.row(at + 1, "loss"))
    has_bad_input = [rank for rank, count in enumerate(log.row(at, "nonfinite_input")) if count]
    assert has_bad_input == (ranks if log.truth["phase"] == "data" else [])


@pytest.mark.parametrize(
    ("name", "metric", "cadence"),
    [
        ("drift_param", "param_checksum", 10),
        ("drift_optimizer", "optim_checksum", 5),
        ("drift_optimizer", "param_checksum", 20),
        ("drift_compute", "canary_checksum", 25),
        ("drift_compute", "canary_loss", 25),
        ("reduce_wrong", "grad_sketch_out", 1),
        ("reduce_wrong", "grad_norm", 1),
    ],
)
def test_the_stated_rank_differs_from_the_first_check_after_the_fault(
    name: str, metric: str, cadence: int
) -> None:
    log = log_of(name)
    first_check = -(-log.truth["iteration"] // cadence) * cadence
    assert log.first_odd(metric) == (first_check, log.truth["ranks"])


def test_a_wrong_computation_is_seen_by_the_canary_alone() -> None:
    log = log_of("drift_compute")
    for metric in ("param_checksum", "optim_checksum", "grad_norm"):
        assert log.first_odd(metric) is None
    for row in log.rows.values():
        for record in row:
            assert record.metrics.get("repeat_checksum/canary") == record.metrics.get("canary_checksum")


@pytest.mark.parametrize(
    "name",
    [name for name in NAMES if not name.startswith(("drift", "reduce_wrong"))],
    ids=lambda name: str(name),
)
def test_replicas_agree_where_no_replica_is_at_fault(name: str) -> None:
    log = log_of(name)
    for metric in ("param_checksum", "optim_checksum", "canary_checksum"):
        assert log.first_odd(metric) is None


@pytest.mark.parametrize("name", ["reduce_clean", "reduce_wrong", "reduce_dropped"])
def test_the_mean_of_what_goes_in_comes_out_but_for_the_fault(name: str) -> None:
    log = log_of(name)
    at, (lost, *_) = log.truth.get("iteration", -1), log.truth["ranks"] or [None]
    lasts = SCENARIOS[name].lasts_iterations or 1
    for attempt, iteration in log.rows:
        sent, got = (log.row(iteration, metric, attempt) for metric in ("grad_sketch_in", "grad_sketch_out"))
        is_struck = at <= iteration < at + lasts
        others = [
            value
            for rank, value in enumerate(sent)
            if not (is_struck and name == "reduce_dropped" and rank == lost)
        ]
        if not all(map(math.isfinite, sent)):
            assert all(log.row(iteration, "skipped", attempt))
            continue
        mean = math.fsum(others) / len(sent)
        wrong = [rank for rank, value in enumerate(got) if abs(value - mean) > 1e-6 * max(map(abs, sent))]
        assert wrong == ([lost] if is_struck and name == "reduce_wrong" else [])


@pytest.mark.parametrize("name", ["explosion", "explosion_late"])
def test_the_stated_onset_is_that_of_the_gradient_norm(name: str) -> None:
    log = log_of(name)
    norms = log.curve("grad_norm")
    onset, tenfold = growth_onset(norms) or (None, 0)
    assert log.truth["iteration"] == onset
    assert onset is not None
    assert onset > log.truth["lr_wrong_from"]
    assert tenfold - onset <= log.truth["tolerance_iterations"]
    assert max(norms[:onset]) < 10 * statistics.median(norms[:onset])
    assert statistics.median(norms[-50:]) > 1000 * statistics.median(norms[:onset])


def test_skipped_iterations_are_the_only_non_finite_ones_of_the_scaled_run() -> None:
    log = log_of("overflow_skips")
    skipped = [at for _, at in log.rows if any(log.row(at, "skipped"))]
    bad = [at for _, at in log.rows if not all(map(math.isfinite, log.row(at, "grad_norm")))]
    assert skipped == bad
    assert skipped[:3] == [0, 1, 2]
    assert len([at for at in skipped if at > 100]) >= 3
    assert not any(any(log.row(at, "nonfinite_loss")) for _, at in log.rows)


def test_one_rank_alone_overflows_and_all_skip_with_it() -> None:
    log = log_of("skips_one_rank")
    at, ranks = log.truth["iteration"], log.truth["ranks"]
    struck = [it for _, it in log.rows if it >= at and (it - at) % 15 == 0]
    assert len(struck) >= 10
    for iteration in struck:
        bad = [rank for rank, count in enumerate(log.row(iteration, "nonfinite_grad")) if count]
        assert (bad, log.row(iteration, "skipped")) == (ranks, [1.0] * 8)


def test_the_evaluation_falls_and_the_training_loss_does_not() -> None:
    log = log_of("eval_falls")
    accuracy = {it: log.row(it, "eval_accuracy")[0] for _, it in log.rows if it % 10 == 0}
    before = [
        value for it, value in accuracy.items() if log.truth["iteration"] - 100 <= it < log.truth["iteration"]
    ]
    after = [value for it, value in accuracy.items() if it >= log.truth["iteration"]]
    assert max(after) < 0.8 * min(before)
    loss = log.curve("loss")
    assert statistics.fmean(loss[-50:]) < statistics.fmean(
        loss[log.truth["iteration"] - 50 : log.truth["iteration"]]
    )


def test_all_ranks_beat_and_one_is_not_where_the_others_wait() -> None:
    log = log_of("hang")
    at, ranks = log.truth["iteration"], log.truth["ranks"]
    last = [event for event in log.events if event.kind is EventKind.HEARTBEAT and event.iteration == at]
    assert {event.rank for event in last} == set(range(8))
    assert {event.rank for event in last if event.fields["phase"] != "reduce_in"} == set(ranks)


def test_the_spike_is_a_spike_and_comes_back() -> None:
    log = log_of("spike_recovered")
    at = plan(DrillConfig(scenario="spike_recovered", seed=log.truth["seed"])).fault_iteration
    assert at is not None
    loss = log.curve("loss")
    before = statistics.fmean(loss[at - 20 : at + 1])
    assert max(loss[at + 1 : at + 10]) > 1.2 * before
    assert statistics.fmean(loss[at + 50 : at + 70]) < 1.02 * before


def test_the_second_attempt_repeats_iterations_bit_by_bit() -> None:
    log = log_of("restart")
    repeated = [at for attempt, at in log.rows if attempt == 1 and (0, at) in log.rows]
    assert len(repeated) == 54
    for at in repeated:
        for metric in ("loss", "grad_norm", "param_checksum"):
            assert log.row(at, metric, 0) == log.row(at, metric, 1)
    resume = next(event for event in log.events if event.kind is EventKind.RESUME)
    assert (resume.attempt, resume.iteration) == (1, repeated[0])


def test_the_logs_that_ship_with_the_package_are_sample_logs() -> None:
    shipped = sorted((ROOT / "service" / "demo_logs").glob("*.jsonl.gz"))
    assert [path.name for path in shipped] == ["drift_param.jsonl.gz", "healthy.jsonl.gz"]
    for path in shipped:
        assert path.read_bytes() == (FOLDER / path.name).read_bytes()


def test_a_gradient_that_is_too_large_is_so_on_the_stated_rank_alone() -> None:
    log = log_of("drift_gradient")
    (bad,), at = log.truth["ranks"], log.truth["iteration"]
    ratios = [
        row[bad] / statistics.median(row)
        for row in (log.row(iteration, "local_grad_norm") for _, iteration in log.rows)
    ]
    assert statistics.fmean(ratios[at:]) - statistics.fmean(ratios[at - 300 : at]) == pytest.approx(
        0.08, abs=0.02
    )
    assert not any("checksum" in name for row in log.rows.values() for name in row[0].metrics)


def test_a_stale_gradient_looks_as_ever_but_for_what_it_goes_with() -> None:
    log = log_of("drift_stale")
    (bad,), at = log.truth["ranks"], log.truth["iteration"]

    def together(rank: int, start: int, stop: int) -> float:
        whole, part = (
            [
                math.log(log.row(iteration, metric)[rank] / statistics.median(log.row(iteration, metric)))
                for iteration in range(start, stop)
            ]
            for metric in ("local_grad_norm", "local_grad_norm/bucket0")
        )
        return statistics.correlation(whole, part)

    assert together(bad, at - 300, at) > 0.9
    assert together(bad, at, at + 300) < 0.4
    assert all(together(rank, at, at + 300) > 0.9 for rank in range(8) if rank != bad)


def test_a_slow_rank_is_slow_from_the_stated_iteration_on() -> None:
    log = log_of("slow_rank")
    (bad,), at = log.truth["ranks"], log.truth["iteration"]
    times = [log.row(iteration, "step_time_s") for _, iteration in log.rows]
    before, after = ([row[bad] / statistics.median(row) for row in part] for part in (times[:at], times[at:]))
    assert max(before) < 1.15
    assert min(after) > 1.2
    assert statistics.fmean(after) == pytest.approx(1.4, abs=0.02)


@pytest.mark.parametrize(
    ("name", "pattern", "detector"),
    [
        ("drift_gradient", "peer_drift", "peer_outlier"),
        ("drift_stale", "peer_drift", "joint"),
        ("slow_rank", "utilization_drop", "slowdown"),
    ],
)
def test_what_single_ranks_do_is_confirmed_as_stated(name: str, pattern: str, detector: str) -> None:
    pipeline = Pipeline()
    for batch in batches([lines_of(FOLDER / f"{name}.jsonl.gz")]):
        pipeline.feed(batch)
    (judged,) = pipeline.verdicts()
    verdict: Any = to_json(judged)
    truth = log_of(name).truth
    root, first = verdict["incidents"][0], verdict["incidents"][0]["first"]
    assert (verdict["label"], root["certainty"], root["pattern"]) == (truth["label"], "confirmed", pattern)
    assert (first["ranks"], first["phase"]) == (truth["ranks"], truth["phase"])
    assert first["interval"][0] < truth["iteration"] <= first["interval"][1]
    assert root["evidence"][0]["detector"] == detector
