"""Skips that one rank alone causes, or makes."""

from __future__ import annotations

import pytest

from service.sentence import headline

from .run_builders import SyntheticRun, judged

SKIPS = range(100, 280, 25)


def scaled() -> SyntheticRun:
    return SyntheticRun(iterations=300).set("skipped", 0, 0).set("loss_scale", 1024.0, 0)


def overflow(run: SyntheticRun, ranks: dict[int, int] | None = None) -> SyntheticRun:
    """At each skip the gradient of one rank (of each skip its own, if told so) overflows; all skip."""
    for t in SKIPS:
        run.set("local_grad_norm", "Infinity", t, t + 1, [3 if ranks is None else ranks[t]])
        run.set("grad_norm", "Infinity", t, t + 1).set("skipped", 1, t, t + 1)
        run.set("loss_scale", 512.0, t + 1, t + 12)
    return run


def test_the_rank_whose_gradient_alone_overflows_time_after_time_is_named() -> None:
    verdict = judged(overflow(scaled()))
    (incident,) = verdict["incidents"]
    assert (incident["certainty"], incident["first"]["ranks"]) == ("confirmed", [3])
    assert incident["evidence"][0]["detail"]["why"].startswith("the gradient of this rank alone")


def test_overflows_that_wander_over_the_ranks_are_loss_scaling() -> None:
    wandering = {t: at % 8 for at, t in enumerate(SKIPS)}
    assert judged(overflow(scaled(), wandering))["label"] == "healthy"


@pytest.mark.parametrize("is_bare", [False, True])
def test_the_rank_that_alone_says_it_skipped_is_named(is_bare: bool) -> None:
    run = scaled()
    for t in SKIPS:
        run.set("skipped", 1, t, t + 1, [3])
    for record in run.records.values() if is_bare else ():
        for name in ("local_grad_norm", "grad_norm", "loss_scale"):
            record.pop(name)
    verdict = judged(run)
    (incident,) = verdict["incidents"]
    first = incident["first"]
    assert (first["ranks"], first["iteration"], first["interval"]) == ([3], 100, [99, 100])
    assert "Rank 3 (host n0) skips step after step since iteration 100." in headline(verdict)
    assert all(cause["kind"] != "numeric_overflow" for cause in incident["causes"])


def test_skips_that_all_ranks_make_or_that_wander_accuse_nobody() -> None:
    together, wandering = scaled(), scaled()
    for at, t in enumerate(SKIPS):
        together.set("skipped", 1, t, t + 1)
        wandering.set("skipped", 1, t, t + 1, [at % 8])
    for run in (together, wandering):
        assert judged(run)["incidents"] == []


def test_one_reporter_of_skips_accuses_nobody() -> None:
    run = SyntheticRun(iterations=300)
    for t in range(300):
        run.set("skipped", int(t in SKIPS), t, t + 1, [0])
    assert judged(run)["incidents"] == []
