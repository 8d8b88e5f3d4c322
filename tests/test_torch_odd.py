"""Models that are watched although their gradients or parameters are of an unusual kind."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from firstfault.torch_metrics import WatchConfig
from firstfault.torch_metrics.arrivals import Arrivals
from firstfault.torch_metrics.hashing import checksum, hex_of

from .watch_builders import ListProbe, watching

pytestmark = pytest.mark.torch
EVERY = WatchConfig(grad_sketch=1, parameters=1, optimizer_state=1, canary_every=2)
TOKENS = torch.tensor([3, 3, 7, 1])
"""Two of them alike: their gradients meet in one row."""


def embedding(*, sparse: bool) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(50, 6, sparse=sparse), nn.Linear(6, 2))


def test_a_sparse_gradient_has_the_norm_of_the_dense_one_and_loses_no_signal() -> None:
    found = []
    for sparse in (True, False):
        model = embedding(sparse=sparse)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with watching(model, optimizer, config=EVERY) as (watch, probe):
            for iteration in range(4):
                model(TOKENS).square().sum().backward()
                optimizer.step()
                watch.at_step(iteration)
                optimizer.zero_grad()
            assert (probe.errors, watch.coverage) == ([], {})
        found.append(probe.said())
    for iteration in range(4):
        norms = [float(said[iteration]["local_grad_norm"]) for said in found]
        assert math.isclose(*norms, rel_tol=1e-6)
    assert "canary_checksum" in found[0][2]


def test_a_value_that_is_not_finite_is_counted_in_a_sparse_gradient() -> None:
    model = embedding(sparse=True)
    with watching(model, None, config=EVERY) as (watch, probe):
        (model[0](TOKENS) * torch.tensor([math.nan, 1, 1, 1, 1, 1])).sum().backward()
        watch.at_step(0)
    assert probe.said()[0]["nonfinite_grad"] == 3  # rows


def test_a_lazy_model_is_watched_from_its_first_step_on() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.Tanh(), nn.LazyLinear(2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = torch.randn(5, 3)
    with watching(model, optimizer, config=EVERY) as (watch, probe):
        for iteration in range(4):
            model(x).square().sum().backward()
            optimizer.step()
            watch.at_step(iteration, 1.0)
            optimizer.zero_grad()
        assert (probe.errors, watch.coverage) == ([], {})
    said = probe.said()
    assert {"loss"} == set(said[0])
    assert {"local_grad_norm", "param_checksum", "optim_checksum"} <= set(said[1])
    assert "canary_checksum" in said[2]


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_a_gradient_met_as_it_arrives_counts_once_where_activations_are_recomputed(
    use_reentrant: bool,
) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = torch.tanh(checkpoint(layer, x, use_reentrant=use_reentrant))
            return x

    model = Model()
    # several ranks without a wrapper of torch's own: nobody knows who reduces, and when
    with watching(model, None, config=EVERY, probe=ListProbe(world_size=2)) as (watch, probe):
        for _ in range(2):  # microbatches
            model(torch.ones(3, 4, requires_grad=True)).sum().backward()
        grads = [one.grad for one in model.parameters() if one.grad is not None]
        whole = math.sqrt(sum(float(one.double().square().sum()) for one in grads))
        watch.at_step(0)
    assert math.isclose(float(probe.said()[0]["local_grad_norm"]), whole, rel_tol=1e-6)


def test_of_gradients_that_arrived_the_newest_counts_and_none_that_was_thrown_away() -> None:
    arrivals = Arrivals()
    arrivals.add(1, torch.tensor([3.0]))
    arrivals.add(0, torch.tensor([100.0]))
    arrivals.add(2, torch.tensor([math.inf, 1.0]))
    arrivals.add(0, torch.tensor([4.0]))
    arrivals.forget({2})
    found = arrivals.norms_and_bad()
    assert found is not None
    assert found[0].tolist() == [4.0, 3.0]
    assert int(found[1]) == 0
    arrivals.clear()
    assert arrivals.norms_and_bad() is None


def test_several_optimizers_are_watched_as_one() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    parts = [
        torch.optim.SGD(model[0].parameters(), lr=0.1, momentum=0.9),
        torch.optim.AdamW(model[1].parameters(), lr=0.01),
    ]
    with watching(model, parts, config=EVERY) as (watch, probe):
        for iteration in range(4):
            model(torch.ones(3, 4)).square().sum().backward()
            for part in parts if iteration < 3 else ():
                part.step()
            watch.at_step(iteration)
    said = probe.said()
    assert probe.errors == []
    assert [each["skipped"] for each in said.values()] == [0, 0, 0, 1]
    assert [each["lr"] for each in said.values()] == [0.1] * 4
    whole = checksum(
        [parts[0].state[one]["momentum_buffer"] for one in model[0].parameters()]
        + [parts[1].state[one][key] for one in model[1].parameters() for key in ("exp_avg", "exp_avg_sq")]
    )
    assert said[3]["optim_checksum"] == hex_of(whole)
    assert [len(part.state) for part in parts] == [2, 2]


def test_a_hook_on_the_steps_of_several_optimizers_is_taken_away_with_the_watch() -> None:
    model = nn.Linear(2, 2)
    parts = [torch.optim.SGD([one], lr=0.1) for one in model.parameters()]
    with watching(model, parts, config=EVERY):
        assert all(part._optimizer_step_post_hooks for part in parts)
    assert not any(part._optimizer_step_post_hooks for part in parts)
