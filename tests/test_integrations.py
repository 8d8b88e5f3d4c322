"""The integrations where something is amiss or switched off: training is as it would be without."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest

import firstfault
from firstfault.integrations.following import bare_optimizer
from firstfault.integrations.layouts import mesh_of_groups
from firstfault.integrations.megatron import megatron_layout, with_experts

pytestmark = pytest.mark.torch


class Loop:
    """What Accelerate hands to a loop: ``backward`` and a flag that tells the last microbatch."""

    scaler = None

    def __init__(self, sync_gradients: object = True) -> None:
        self._sync_gradients = sync_gradients

    @property
    def sync_gradients(self) -> object:
        """Whether gradients are whole now."""
        if isinstance(self._sync_gradients, Exception):
            raise self._sync_gradients
        return self._sync_gradients

    def backward(self, loss: Any) -> str:
        """Accumulate gradients."""
        loss.backward()
        return "done"


def a_model() -> tuple[Any, Any]:
    """A small model and its optimizer."""
    import torch

    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def test_switched_off_nothing_is_put_around_anything(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FIRSTFAULT", "off")
    model, optimizer = a_model()
    loop = Loop()
    step = optimizer.step
    probe = firstfault.accelerate_probe(loop, model, optimizer, sink=str(tmp_path / "log.jsonl"))
    assert not probe.is_on
    assert "backward" not in vars(loop)
    assert optimizer.step == step
    assert list(tmp_path.iterdir()) == []


def test_what_fails_in_a_hook_is_counted_and_the_step_is_done(tmp_path: Path) -> None:
    import torch

    model, optimizer = a_model()
    loop = Loop(sync_gradients=RuntimeError("another release"))
    probe = firstfault.accelerate_probe(loop, model, optimizer, sink=str(tmp_path / "log.jsonl"))
    before = model.weight.detach().clone()
    assert loop.backward(model(torch.ones(2, 3)).mean()) == "done"
    optimizer.step()
    assert not torch.equal(before, model.weight)
    assert probe.errors == 1
    probe.close()


@pytest.mark.parametrize("mesh", [[["pp", 2], ["dp", 1]], {"0": {"pp": 0}, "1": {"pp": 1}}])
def test_a_stage_of_a_pipeline_that_the_probe_is_told_of_has_a_canary_of_its_own(
    mesh: Any, tmp_path: Path
) -> None:
    sink = str(tmp_path / "log.jsonl")
    with firstfault.Probe(run="r", rank=0, world_size=2, sink=sink, mesh=mesh) as probe:
        probe.watch(*a_model())
        left_out = probe.watching.coverage
    assert "canary" not in left_out
    assert "pipeline" in left_out["data_checksum"]


def test_a_stage_that_is_given_its_input_beside_its_arguments_has_no_canary(tmp_path: Path) -> None:
    sink = str(tmp_path / "log.jsonl")
    with firstfault.Probe(run="r", rank=0, world_size=2, sink=sink, mesh=[["pp", 2]]) as probe:
        model, optimizer = a_model()
        model.set_input_tensor = lambda tensor: None
        probe.watch(model, optimizer)
        assert "set_input_tensor" in probe.watching.coverage["canary"]


def test_a_model_that_is_watched_in_place_of_another_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with firstfault.Probe(run="r", rank=0, sink=str(tmp_path / "log.jsonl")) as probe:
        probe.watch(*a_model())
        assert not caplog.messages
        probe.watch(*a_model())
    assert caplog.messages == ["firstfault: another model is watched from now on, and the one before no more"]


def test_wrappers_around_an_optimizer_are_taken_off() -> None:
    _, optimizer = a_model()
    assert bare_optimizer(
        SimpleNamespace(optimizer=SimpleNamespace(optimizer=optimizer, param_groups=[]))
    ) is (optimizer)
    assert bare_optimizer(None) is None


def test_groups_that_are_not_regular_give_no_mesh() -> None:
    assert mesh_of_groups({"dp": [0, 1, 3]}, 4) is None
    assert mesh_of_groups({"dp": [0, 2]}, 4) is None
    assert mesh_of_groups({"dp": [0, 2], "tp": [0, 1]}, 4) == [["dp", 2], ["tp", 2]]
    assert mesh_of_groups({"dp": [0], "tp": [0]}, 1) == [["dp", 1]]


def test_experts_that_are_not_spread_over_neighbours_give_no_mesh() -> None:
    mesh: list[list[object]] = [["pp", 2], ["dp", 4]]
    assert with_experts(mesh, [4, 5, 6, 7], [4, 5]) == [["pp", 2], ["dp", 2], ["ep", 2]]
    assert with_experts(mesh, [4, 5, 6, 7], [4, 6]) is None


class ParallelState(ModuleType):
    """The groups of rank 5 of 8: two stages of two replicas of two parts, with experts over the replicas."""

    GROUPS: ClassVar = {
        "tensor_model_parallel": [4, 5],
        "context_parallel": [5],
        "data_parallel": [5, 7],
        "pipeline_model_parallel": [1, 5],
        "expert_model_parallel": [5, 7],
    }

    def __getattr__(self, name: str) -> Any:
        group = self.GROUPS.get(name.removeprefix("get_").removesuffix("_group"))
        if group is None:
            raise AttributeError(name)
        return lambda: group


class DistributedOptimizer:
    """Shards its state over replicas, as Megatron's class of this name."""


def test_the_layout_of_megatron_comes_from_its_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch import distributed

    assert megatron_layout(None) == {}
    monkeypatch.setitem(sys.modules, "megatron.core.parallel_state", ParallelState("parallel_state"))
    monkeypatch.setattr(distributed, "get_process_group_ranks", lambda group: group)
    monkeypatch.setattr(distributed, "get_world_size", lambda: 8)
    mesh = [["pp", 2], ["dp", 1], ["ep", 2], ["tp", 2]]
    assert megatron_layout(None) == {"mesh": mesh, "sharding": "none"}
    chained = SimpleNamespace(chained_optimizers=[DistributedOptimizer()])
    assert megatron_layout(chained) == {"mesh": mesh, "sharding": "zero1"}
