"""Who can have been the first with a non-finite value, as far as the telemetry of a job tells."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from firstfault.drill.rig.oracle import suspects
from firstfault.drill.rig.recording import Recording
from firstfault.mesh import Layout

from .truth_builders import healthy, with_metric, with_number

PIPELINE = Layout(axes=("pp", "dp"), coordinates={rank: divmod(rank, 2) for rank in range(8)})
SENT = "nonfinite_send/pp"
KNOWN = ("loss", "local_grad_norm", "grad_norm", "nonfinite_act")


def piped() -> Recording:
    """A pipeline of four stages: the last one has a loss, the others send activations on."""
    twin = with_metric(healthy(layout=PIPELINE), SENT, np.zeros((400, 8)))
    twin.present["loss"][:, :6] = False
    twin.present[SENT][:, 6:] = False
    return twin


def bad_at(run: Recording, **columns: Iterable[int]) -> Recording:
    """A copy in which these metrics are non-finite on these ranks, at position 200."""
    for metric, ranks in columns.items():
        for rank in ranks:
            run = with_number(run, metric, 1.0 if metric.startswith("nonfinite_") else np.nan, (200, rank))
    return run


def test_the_oracle_of_a_pipeline_names_the_stage_that_reports_and_else_the_whole_pipeline() -> None:
    bad = bad_at(piped(), loss=[6], local_grad_norm=[0, 2, 4, 6], grad_norm=range(8))
    assert suspects(bad.cut(["loss", "local_grad_norm", "grad_norm"]), 200) == (0, 2, 4, 6)
    bad = bad_at(bad, nonfinite_act=[2, 4, 6])  # with the activations of each stage: it began on the second,
    assert suspects(bad.cut(KNOWN), 200) == (0, 2)  # or on its way there from the first
    assert suspects(bad_at(bad, **{SENT: [2, 4]}).cut([*KNOWN, SENT]), 200) == (2,)


def test_a_message_that_went_wrong_is_its_senders() -> None:
    bad = bad_at(piped(), loss=[6], local_grad_norm=[0, 2, 4, 6], grad_norm=range(8), nonfinite_act=[4, 6])
    assert suspects(bad.cut(KNOWN), 200) == (2, 4)
    assert suspects(bad_at(bad, **{SENT: [2, 4]}).cut([*KNOWN, SENT]), 200) == (2,)


def test_what_only_the_reduction_shows_may_be_anybodys_and_one_bad_copy_is_its_receivers() -> None:
    twin = with_metric(healthy(), "nonfinite_reduced", np.zeros((400, 8)))
    everywhere = bad_at(twin, nonfinite_reduced=range(8), grad_norm=range(8))
    assert suspects(everywhere, 200) == tuple(range(8))
    assert suspects(bad_at(twin, nonfinite_reduced=[5], grad_norm=[5]), 200) == (5,)


def test_a_shard_of_a_reduction_may_come_from_anybody() -> None:
    sharded = Layout(axes=("dp",), coordinates={rank: (rank,) for rank in range(8)}, sharding="zero3")
    twin = with_metric(healthy(layout=sharded), "nonfinite_reduced", np.zeros((400, 8)))
    bad = bad_at(twin, nonfinite_reduced=[7], grad_norm=range(8))
    assert suspects(bad, 200) == tuple(range(8))


def test_what_an_expert_hands_back_shows_with_others_and_its_own_gradient_at_home() -> None:
    experts = Layout(axes=("dp", "ep"), coordinates={rank: divmod(rank, 4) for rank in range(8)})
    twin = healthy(layout=experts)
    for metric in ("local_grad_norm/expert", "act_grad_norm/layer0"):
        twin = with_metric(twin, metric, np.ones((400, 8)))
    twin = with_metric(twin, "nonfinite_grad", np.zeros((400, 8)))
    counted = {"nonfinite_grad": [3], "grad_norm": range(8)}

    of_expert = bad_at(twin, **{**counted, "local_grad_norm/expert": [3]})
    of_the_rest = bad_at(twin, **{**counted, "local_grad_norm": [3], "act_grad_norm/layer0": [3]})

    assert suspects(of_expert, 200) == (3,)
    assert suspects(of_the_rest, 200) == (0, 1, 2, 3)


def test_a_sum_that_is_handed_over_bad_is_of_the_rank_that_computed_a_bad_part() -> None:
    split = Layout(axes=("pp", "tp"), coordinates={rank: divmod(rank, 2) for rank in range(8)})
    twin = with_metric(healthy(layout=split), SENT, np.zeros((400, 8)))
    twin.present["loss"][:, :6] = False
    twin.present[SENT][:, 6:] = False
    after = {"loss": [6, 7], "local_grad_norm": range(8), "grad_norm": range(8)}
    bad = bad_at(twin, **{**after, SENT: [2, 3, 4, 5], "nonfinite_act": [3, 4, 5, 6, 7]})

    assert suspects(bad.cut([*KNOWN, SENT]), 200) == (3,)
