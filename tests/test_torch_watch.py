"""A watch on a model: what is said at which iteration, and that nothing of it reaches training."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from firstfault.torch_metrics import Readback, Watch, WatchConfig, checksum, hex_of, readback

from .watch_builders import ListProbe, batch, small_model, train, watching

pytestmark = pytest.mark.torch


class Failing:
    """A signal that raises where it is told to."""

    name = "failing"

    def __init__(self, where: str) -> None:
        self._where = where
        self.detached = 0

    def attach(self, watch: Watch) -> None:
        watch.module.register_forward_hook(watch.guarded(self, self._hook))
        self._fail("attach")

    def at_step(self, iteration: int, out: Readback) -> None:
        self._fail("at_step")

    def detach(self) -> None:
        self.detached += 1
        self._fail("detach")

    def _hook(self, *_: object) -> None:
        self._fail("hook")

    def _fail(self, where: str) -> None:
        if self._where == where:
            raise RuntimeError(f"in {where}")


def test_a_step_says_loss_rate_and_time_under_its_iteration() -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.125)
    with watching(model, optimizer) as (watch, probe):
        train(model, optimizer, watch, iterations=3)
    said = probe.said()
    assert sorted(said) == [0, 1, 2]
    assert all(
        one["lr"] == 0.125 and one["skipped"] == 0 and one["nonfinite_loss"] == 0 for one in said.values()
    )
    assert all(isinstance(one["loss"], float) and float(one["step_time_s"]) > 0 for one in said.values())
    assert probe.errors == []


def test_checksums_are_those_of_the_state_and_come_at_their_cadence() -> None:
    model = small_model()
    optimizer = torch.optim.Adam(model.parameters())
    with watching(model, optimizer, config=WatchConfig(parameters=2, optimizer_state=4)) as (watch, probe):
        train(model, optimizer, watch, iterations=5)
    said = probe.said()
    assert [t for t in said if "param_checksum" in said[t]] == [0, 2, 4]
    assert [t for t in said if "optim_checksum" in said[t]] == [0, 4]
    assert said[4]["param_checksum"] == hex_of(checksum(model.parameters()))
    assert said[4]["nonfinite_param"] == 0


def test_a_value_of_the_trainer_wins_over_a_measured_one() -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watching(model, optimizer) as (watch, probe):
        watch.at_step(7, torch.tensor(2.0), {"lr": 0.5, "grad_norm": torch.tensor(3.0)})
    assert probe.said()[7]["lr"] == 0.5
    assert probe.said()[7]["grad_norm"] == 3.0
    assert probe.said()[7]["loss"] == 2.0


@pytest.mark.parametrize("where", ["attach", "hook", "at_step", "detach"])
def test_a_signal_that_raises_is_detached_alone_and_training_goes_on(where: str) -> None:
    signal = Failing(where)
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watching(model, optimizer) as (watch, probe):
        watch.add(signal)
        train(model, optimizer, watch, iterations=3)
    assert [str(error) for _, error in probe.errors] == [f"in {where}"]
    assert signal.detached == 1
    assert ("failing" in watch.coverage) is (where != "detach")
    assert sorted(probe.said()) == [0, 1, 2]


def test_a_muted_watch_sees_no_pass() -> None:
    signal = Failing("hook")
    model = small_model()
    with watching(model, signals=[signal]) as (watch, probe):
        with watch.mute():
            model(batch(0))
        assert probe.errors == []
        model(batch(0))
        assert len(probe.errors) == 1


def test_a_value_that_is_no_number_is_told_and_the_others_are_kept() -> None:
    model = small_model()
    with watching(model) as (watch, probe):
        watch.at_step(0, torch.tensor(1.0), {"losses": torch.zeros(2), "tokens": 5})
    assert [where for where, _ in probe.errors] == ["step(losses=…)"]
    assert probe.said()[0]["tokens"] == 5


class Late(Readback):
    """As of a device whose copies arrive when a test says so."""

    def __init__(self, probe: ListProbe) -> None:
        super().__init__(probe.log)
        self.events: list[Event] = []

    def _copy(self, device: torch.device, packed: torch.Tensor) -> tuple[torch.Tensor, Any]:
        self.events.append(Event())
        return packed.clone(), self.events[-1]


class Event:
    def __init__(self) -> None:
        self.has_passed = False

    def query(self) -> bool:
        return self.has_passed


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> tuple[Late, ListProbe]:
    monkeypatch.setattr(readback, "_has_streams", lambda device: True)
    probe = ListProbe()
    return Late(probe), probe


def test_what_arrives_later_is_logged_under_the_iteration_that_it_is_of(late: tuple[Late, ListProbe]) -> None:
    out, probe = late
    for iteration in range(3):
        out.begin(iteration)
        out.put("loss", torch.tensor(float(iteration)))
        out.put("lr", 0.5)
        out.put("param_checksum", torch.tensor(iteration - 1))
        out.flush()
        out.drain()
    assert probe.records == []
    for event in out.events[:2]:
        event.has_passed = True
    out.drain()
    assert probe.said() == {
        0: {"lr": 0.5, "loss": 0.0, "param_checksum": "f" * 16},
        1: {"lr": 0.5, "loss": 1.0, "param_checksum": "0" * 16},
    }


def test_what_never_arrives_is_counted_and_waited_for_no_longer_than_asked(
    late: tuple[Late, ListProbe],
) -> None:
    out, probe = late
    out.begin(0)
    out.put("loss", torch.tensor(1.0))
    out.flush()
    assert out.close(0.0) == 1
    assert probe.records == []


def test_a_watch_that_closes_tells_of_steps_that_never_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readback, "_has_streams", lambda device: True)
    monkeypatch.setattr(Readback, "_copy", lambda self, device, packed: (packed.clone(), Event()))
    probe = ListProbe()
    watch = Watch(probe, small_model(), signals=())
    for iteration in range(2):
        watch.at_step(iteration, torch.tensor(1.0))
    watch.close(0.0)
    assert [(where, str(error)) for where, error in probe.errors] == [
        ("read-back", "the device did not hand over 2 steps within 0 s")
    ]


def test_microbatches_have_records_of_their_own_and_the_trainers_values_win() -> None:
    probe = ListProbe()
    out = Readback(probe.log)
    out.begin(4)
    out.give("a", 9.0)
    out.put("a", torch.tensor(1.0))
    out.put("b", torch.tensor(2.0))
    out.put("loss", torch.tensor(3.0), microbatch=1)
    out.flush()
    assert probe.records == [(4, None, {"a": 9.0, "b": 2.0}), (4, 1, {"loss": 3.0})]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_scalars_of_an_accelerator_are_read_without_a_wait() -> None:
    probe = ListProbe()
    out = Readback(probe.log)
    for iteration in range(4):
        out.begin(iteration)
        out.put("loss", torch.tensor(float(iteration), device="cuda"))
        torch.cuda.set_sync_debug_mode("error")
        out.flush()
        out.drain()
        torch.cuda.set_sync_debug_mode("default")
    assert out.close(5.0) == 0
    assert probe.said() == {iteration: {"loss": float(iteration)} for iteration in range(4)}


def test_the_scale_told_is_the_one_that_the_gradients_came_with() -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    with watching(model, optimizer, scaler=scaler) as (watch, probe):
        scaler.scale(torch.tensor(0.0))
        scaler.update(2.0)
        scaler.scale(model(batch(0)).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update(4.0)
        watch.at_step(0)
    assert probe.said()[0]["loss_scale"] == 2.0


def test_a_cadence_that_is_no_count_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="grad_sketch must be an integer from 0"):
        WatchConfig(grad_sketch=-1)
    with pytest.raises(ValueError, match="activation_layers must be a tuple"):
        WatchConfig(activation_layers="layers.0")  # type: ignore[arg-type]  # what a person may write
