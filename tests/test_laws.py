"""Laws 1 to 4, 6 and 7 of the path of a record, on the sample logs."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingest.decode import Decoder, RawMessage
from service.pipeline import Pipeline

from .sample_builders import Truth, cut, doubled, lines_of, manifest, shuffled, verdict_bytes

LOGS = manifest()
one_by_name = pytest.mark.parametrize("truth", LOGS, ids=[truth.name for truth in LOGS])
SHORT = 1500
"""Lines of the short logs on which many arrangements are tried: past the lateness bound of 8 ranks."""


@cache
def plain_bytes(file: Path, stop: int | None = None) -> list[bytes]:
    """The verdicts of the first lines of a log, read at once: what every arrangement must give."""
    return verdict_bytes([lines_of(file)[:stop]])


@one_by_name
def test_order_within_the_bound_and_duplication_do_not_matter(truth: Truth) -> None:
    lines = lines_of(truth.file)
    for seed in range(2):
        rng = random.Random(seed)
        arranged = shuffled(doubled(lines, rng), rng)
        assert verdict_bytes(cut(arranged, [997])) == plain_bytes(truth.file)


@one_by_name
def test_cutting_does_not_matter(truth: Truth) -> None:
    lines = lines_of(truth.file)
    for sizes in ([61], [1, 2, 3, 500, 8, 1000]):
        assert verdict_bytes(cut(lines, sizes)) == plain_bytes(truth.file)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6), data=st.data())
def test_any_arrangement_of_a_short_log_gives_the_same_bytes(seed: int, data: st.DataObject) -> None:
    truth = data.draw(st.sampled_from([log for log in LOGS if log.ranks]))
    lines = lines_of(truth.file)[:SHORT]
    rng = random.Random(seed)
    arranged = shuffled(doubled(lines, rng), rng)
    sizes = data.draw(st.lists(st.integers(1, 700), min_size=1, max_size=6))

    assert verdict_bytes(cut(arranged, sizes)) == plain_bytes(truth.file, SHORT)


def test_one_record_at_a_time_gives_the_bytes_of_the_whole_file_at_once() -> None:
    truth = next(log for log in LOGS if log.name == "nan_activation")
    lines = lines_of(truth.file)[:SHORT]

    assert verdict_bytes(cut(lines, [1])) == plain_bytes(truth.file, SHORT)


def test_asking_for_a_verdict_in_between_changes_nothing() -> None:
    truth = next(log for log in LOGS if log.name == "drift_param")
    lines = lines_of(truth.file)
    pipeline, decoder = Pipeline(), Decoder()
    for offset, piece in enumerate(cut(lines, [1111])):
        pipeline.feed(decoder.decode([RawMessage("sample", offset, b"\n".join(piece))]))
        for ended in (False, True):
            pipeline.verdicts(ended=ended)

    from detectors.verdict import canonical_bytes

    assert [canonical_bytes(verdict) for verdict in pipeline.verdicts()] == plain_bytes(truth.file)


@one_by_name
def test_a_checkpoint_in_between_changes_nothing(truth: Truth) -> None:
    from detectors.verdict import canonical_bytes

    lines = lines_of(truth.file)
    pipeline, decoder = Pipeline(), Decoder()
    for offset, piece in enumerate(cut(lines, [2345])):
        pipeline.feed(decoder.decode([RawMessage("sample", offset, b"\n".join(piece))]))
        restored = Pipeline()
        restored.restore(pipeline.snapshot())
        pipeline = restored

    assert [canonical_bytes(verdict) for verdict in pipeline.verdicts()] == plain_bytes(truth.file)


def test_state_does_not_grow_with_the_length_of_a_run() -> None:
    truth = next(log for log in LOGS if log.name == "healthy")
    template = [line for line in lines_of(truth.file) if b'"event"' not in line]
    per_round = template[: 8 * 200]
    pipeline, decoder = Pipeline(), Decoder()
    sizes = []
    for turn in range(12):
        moved = [_moved(line, 200 * turn) for line in per_round]
        pipeline.feed(decoder.decode([RawMessage("sample", turn, b"\n".join(moved))]))
        sizes.append(len(pipeline.snapshot()))

    assert sizes[-1] < 1.5 * sizes[3]
    assert psutil.Process().memory_info().rss < 4 << 30


def _moved(line: bytes, by: int) -> bytes:
    import json

    fields = json.loads(line)
    return json.dumps({**fields, "iteration": fields["iteration"] % 200 + by}).encode()


def _shrunk(iterations: int, shrinks_at: int, rng: random.Random) -> list[bytes]:
    """A job that says in its middle that one rank is left of it, while all of them go on reporting.

    One metric is reported only before that, one is one number of all ranks, one begins after it.
    """
    import json

    def event(kind: str, iteration: int, ranks: int) -> bytes:
        mesh = [["dp", ranks]]
        fields = {"run": "r", "event": kind, "rank": 0, "iteration": iteration}
        return json.dumps({**fields, "world_size": ranks, "mesh": mesh}).encode()

    lines = [event("run_start", 0, 4)]
    for iteration in range(iterations):
        if iteration == shrinks_at:
            lines.append(event("membership", iteration, 1))
        for rank in range(4):
            fields = {"run": "r", "rank": rank, "iteration": iteration, "loss": 2.0 + rng.gauss(0, 0.1)}
            if iteration < shrinks_at:
                fields |= {"act_grad_norm": 1.0 + rng.random(), "grad_checksum": f"{iteration:x}"}
            else:
                fields |= {"grad_absmax": 1.0 + rng.random()}
            lines.append(json.dumps({**fields, "grad_norm": 1.0 + iteration % 7}).encode())
    return lines


@pytest.mark.parametrize(("iterations", "shrinks_at"), [(100, 22), (75, 2)])
def test_a_shrink_while_all_ranks_go_on_reporting_gives_the_same_bytes_in_any_order(
    iterations: int, shrinks_at: int
) -> None:
    rng = random.Random(iterations)
    lines = _shrunk(iterations, shrinks_at, rng)
    plain = verdict_bytes([lines])

    for size in (7, 997):
        assert verdict_bytes(cut(lines, [size])) == plain
        assert verdict_bytes(cut(shuffled(lines, rng), [size])) == plain
