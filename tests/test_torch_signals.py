"""What single signals say of a model in training, in one process."""

from __future__ import annotations

import copy
import gc
import io
import math
import weakref
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from firstfault.torch_metrics import Watch, WatchConfig, checksum, hex_of, inputs
from firstfault.torch_metrics.gradients import Gradients
from firstfault.torch_metrics.sketching import COLUMNS, sketch

from .watch_builders import ListProbe, Said, batch, small_model, train, watching

pytestmark = pytest.mark.torch
EVERY = WatchConfig(grad_sketch=1, parameters=1, optimizer_state=1)


def said_of(model: nn.Module, *, iterations: int = 1, config: WatchConfig = EVERY, **more: Any) -> Said:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watching(model, optimizer, config=config) as (watch, probe):
        train(model, optimizer, watch, iterations=iterations, **more)
    assert probe.errors == []
    return probe.said()


class Recomputing(nn.Module):
    """Two layers whose activations are computed again in the backward pass."""

    def __init__(self, use_reentrant: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])
        self._use_reentrant = use_reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.requires_grad_()
        for layer in self.layers:
            x = torch.tanh(checkpoint(layer, x, use_reentrant=self._use_reentrant))
        return x


def norm_of(tensors: Any) -> float:
    return math.sqrt(sum(float(one.double().square().sum()) for one in tensors))


def test_norms_are_those_of_the_gradient_before_it_is_clipped() -> None:
    model = small_model()
    norms: list[float] = []

    def clip(_: int) -> None:
        norms.append(norm_of(one.grad for one in model.parameters()))
        nn.utils.clip_grad_norm_(model.parameters(), 1e-3)

    said = said_of(model, iterations=3, between=clip)
    for iteration in range(3):
        assert math.isclose(float(said[iteration]["local_grad_norm"]), norms[iteration], rel_tol=1e-6)
        assert said[iteration]["grad_norm"] == said[iteration]["local_grad_norm"]


def test_an_accumulated_gradient_is_looked_at_as_a_whole() -> None:
    model = small_model()
    norms: list[float] = []
    said = said_of(
        model, microbatches=3, between=lambda _: norms.append(norm_of(p.grad for p in model.parameters()))
    )
    assert math.isclose(float(said[0]["grad_norm"]), norms[0], rel_tol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_a_norm_of_a_small_type_neither_overflows_nor_is_rounded_to_it(dtype: torch.dtype) -> None:
    model = nn.Linear(64, 64, bias=False).to(dtype)
    with watching(model, signals=[Gradients()], config=EVERY) as (watch, probe):
        torch.autograd.backward(model.weight, torch.full((64, 64), 1234.0, dtype=dtype))
        watch.at_step(0)
    told = probe.said()[0]
    assert math.isclose(
        float(told["local_grad_norm"]), 64 * float(torch.tensor(1234.0, dtype=dtype)), rel_tol=1e-5
    )
    assert told["nonfinite_grad"] == 0


@pytest.mark.parametrize(("value", "count"), [(math.nan, 3), (math.inf, 3), (-math.inf, 3), (3e38, 0)])
def test_values_that_are_not_finite_are_counted_where_they_are(value: float, count: int) -> None:
    model = small_model()
    with watching(model, signals=[Gradients()], config=EVERY) as (watch, probe):
        grad = torch.zeros(16, 8)
        grad.view(-1)[[0, 7, 100]] = value
        torch.autograd.backward(next(model.parameters()), grad)
        watch.at_step(0)
    assert probe.said()[0]["nonfinite_grad"] == count


def test_an_input_that_is_not_finite_is_seen_from_the_input_on() -> None:
    model = small_model()
    with watching(model, config=EVERY) as (watch, probe):
        given = batch(0)
        given[0, 0] = math.nan
        loss = model(given).square().mean()
        loss.backward()
        watch.at_step(0, loss)
    told = probe.said()[0]
    counts = {name: told[name] for name in told if name.startswith("nonfinite_") and float(told[name]) > 0}
    assert sorted(counts) == [
        "nonfinite_act",
        "nonfinite_grad",
        "nonfinite_input",
        "nonfinite_logits",
        "nonfinite_loss",
        "nonfinite_reduced",
    ]
    assert counts["nonfinite_input"] == 1
    assert told["nonfinite_param"] == 0


def test_activation_gradients_are_those_of_the_layers_outputs() -> None:
    model = small_model()
    outputs: list[torch.Tensor] = []

    def keep(_: nn.Module, __: object, output: torch.Tensor) -> None:
        output.retain_grad()
        outputs.append(output)

    for at in range(3):
        model.get_submodule(f"layers.{at}").register_forward_hook(keep)
    told = said_of(model)[0]
    for at, output in enumerate(outputs):
        assert math.isclose(float(told[f"act_grad_norm/layers.{at}"]), norm_of([output.grad]), rel_tol=1e-6)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_a_recomputed_activation_counts_once(use_reentrant: bool) -> None:
    model = Recomputing(use_reentrant)
    with torch.no_grad():
        model.get_parameter("layers.0.bias")[0] = math.inf
    with watching(model, config=EVERY) as (watch, probe):
        model(batch(0)).square().mean().backward()
        watch.at_step(0)
    told = probe.said()[0]
    rows = 6
    assert told["nonfinite_act"] == rows
    assert "act_grad_norm/layers.0" in told


def test_evaluation_and_inference_go_by_unseen() -> None:
    model = small_model()
    with watching(model, config=EVERY) as (watch, probe):
        with torch.inference_mode():
            model(batch(0))
        with torch.no_grad():
            model(batch(1))
        model.eval()
        model(batch(2))
        watch.at_step(0)
    assert probe.errors == []
    assert not any(name.startswith(("data", "act", "nonfinite_a", "nonfinite_i")) for name in probe.said()[0])


def test_a_model_in_inference_mode_has_checksums_too() -> None:
    model = small_model()
    with watching(model, config=EVERY) as (watch, probe), torch.inference_mode():
        watch.at_step(0)
    assert probe.errors == []
    assert probe.said()[0]["param_checksum"] == hex_of(checksum(model.parameters()))


def test_data_checksums_tell_batches_apart_and_know_them_again() -> None:
    said = said_of(small_model(), iterations=3, microbatches=2)
    again = said_of(small_model(1), iterations=3, microbatches=2)
    assert len({said[t]["data_checksum"] for t in said}) == 3
    assert [said[t]["data_checksum"] for t in said] == [again[t]["data_checksum"] for t in again]


def test_a_loop_that_never_steps_keeps_few_checksums_of_its_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "MOST_HASHES", 4)
    model = small_model()
    with watching(model, config=EVERY) as (watch, probe):
        one = next(signal for signal in watch._signals if isinstance(signal, inputs.Inputs))
        for at in range(30):
            model(torch.full((2, 8), float(at)))
            assert len(one._hashes) < 4
        watch.at_step(0)
    assert "data_checksum" in probe.said()[0]


def test_tokens_are_the_labels_that_count() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(10, 4)

        def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"logits": self.embed(input_ids)}

    model = Model()
    labels = torch.full((2, 6), -100)
    labels[0, :4] = 1
    with watching(model, config=EVERY) as (watch, probe):
        model(input_ids=torch.zeros(2, 6, dtype=torch.int64), labels=labels)["logits"].sum().backward()
        watch.at_step(0)
    assert probe.said()[0]["tokens"] == 4
    assert probe.said()[0]["nonfinite_logits"] == 0


@pytest.mark.parametrize("offset", [0, 1, COLUMNS - 1, COLUMNS, 3 * COLUMNS + 5])
def test_sketches_of_shards_add_up_to_that_of_the_whole(offset: int) -> None:
    whole = torch.randn(5 * COLUMNS + 77, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    parts = sketch(whole[:offset], row=2) + sketch(whole[offset:], row=2, offset=offset)
    assert math.isclose(float(parts), float(sketch(whole, row=2)), rel_tol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_a_sketch_is_linear_and_sees_a_single_changed_value(dtype: torch.dtype) -> None:
    values = torch.randn(3 * COLUMNS + 5, generator=torch.Generator().manual_seed(2)).to(dtype)
    changed = values.clone()
    changed[COLUMNS + 7] += 8
    assert math.isclose(abs(float(sketch(changed)) - float(sketch(values))), 8.0, rel_tol=0.01)
    assert math.isclose(float(sketch(values * 2)), 2 * float(sketch(values)), rel_tol=1e-4)
    assert math.isnan(float(sketch(changed * math.nan)))


def test_tied_frozen_and_unused_parameters_are_each_looked_at_once_or_not_at_all() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layers = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)])
            self.layers[1].weight = self.layers[0].weight
            self.layers[2].requires_grad_(False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.layers[2](torch.tanh(self.layers[1](torch.tanh(self.layers[0](x)))))
            return found

    model = Tied()
    told = said_of(model)[0]
    held = [one.grad for one in model.parameters() if one.grad is not None]
    assert len(held) == 3
    assert math.isclose(float(told["grad_norm"]), norm_of(held), rel_tol=1e-6)


def test_a_layer_that_is_put_in_later_is_watched_too() -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watching(model, optimizer, config=EVERY) as (watch, probe):
        train(model, optimizer, watch, iterations=1)
        model.set_submodule("layers.1", nn.Linear(16, 16))
        train(model, optimizer, watch, iterations=2)
    held = norm_of(one.grad for one in model.parameters())
    assert math.isclose(float(probe.said()[1]["grad_norm"]), held, rel_tol=1e-6)
    assert probe.errors == []


def test_copies_and_saved_models_carry_no_watch() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    with watching(model, config=EVERY) as (_, probe):
        saved = io.BytesIO()
        torch.save(model, saved)
        assert b"firstfault" not in saved.getvalue()  # it is loaded where nobody knows of us
        saved.seek(0)
        for twin in (copy.deepcopy(model), torch.load(saved, weights_only=False)):
            twin(torch.ones(2, 8)).square().mean().backward()
            model.load_state_dict(twin.state_dict())
    assert probe.errors == []


def test_nothing_of_the_model_is_kept_once_a_watch_is_detached() -> None:
    probe, model = ListProbe(), small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = Watch(probe, model, optimizer, config=EVERY)
    train(model, optimizer, watch, iterations=2)
    watch.detach()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert not any(one._post_accumulate_grad_hooks for one in model.parameters())
    kept = weakref.ref(model)
    del model, optimizer
    gc.collect()
    assert kept() is None


def test_a_gradient_is_let_go_at_the_step() -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watching(model, optimizer, config=EVERY) as (watch, _):
        train(model, optimizer, watch, iterations=1)
        kept = [weakref.ref(one.grad) for one in model.parameters() if one.grad is not None]
        assert len(kept) == 6
        optimizer.zero_grad(set_to_none=True)
        gc.collect()
        assert [one() for one in kept] == [None] * 6


def test_compiled_code_is_trained_without_a_break_and_what_cannot_be_seen_is_said() -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    compiled: Any = torch.compile(model, backend="eager", fullgraph=True)
    with watching(compiled, optimizer, config=EVERY) as (watch, probe):
        train(compiled, optimizer, watch, iterations=2)
    assert probe.errors == []
    assert "compiled" in watch.coverage["act_grad_norm"]
    assert {"data_checksum", "local_grad_norm", "nonfinite_logits"} <= set(probe.said()[1])


def test_of_a_reduction_that_is_not_known_the_local_side_is_told_and_the_other_left_out() -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    norms: list[float] = []

    def reduce(_: int) -> None:
        norms.append(norm_of(one.grad for one in model.parameters()))
        for one in model.parameters():
            assert one.grad is not None
            one.grad.mul_(0.5)

    with watching(model, optimizer, config=EVERY, probe=ListProbe(world_size=2)) as (watch, probe):
        train(model, optimizer, watch, iterations=2, microbatches=2, between=reduce)
        assert "grad_norm" in watch.coverage
        assert "local_grad_norm" not in watch.coverage
    for iteration, norm in enumerate(norms):
        assert math.isclose(float(probe.said()[iteration]["local_grad_norm"]), norm, rel_tol=1e-6)
        assert "grad_norm" not in probe.said()[iteration]


def test_a_step_without_a_gradient_is_said_in_the_coverage() -> None:
    with watching(small_model(), config=EVERY) as (watch, _):
        watch.at_step(0)
        assert "no gradient" in watch.coverage["local_grad_norm"]


def test_a_trainer_with_a_reduction_of_its_own_hands_gradients_over() -> None:
    model = small_model()
    grads = [torch.ones(100), torch.full((50,), 2.0)]
    with watching(model, signals=[Gradients()], config=EVERY) as (watch, probe):
        watch.before_reduction(grads)
        watch.after_reduction([one * 2 for one in grads])
        watch.at_step(0)
    told = probe.said()[0]
    assert math.isclose(float(told["local_grad_norm"]), math.sqrt(300), rel_tol=1e-6)
    assert math.isclose(float(told["grad_norm"]), math.sqrt(1200), rel_tol=1e-6)
    for name in told:
        if name.startswith("grad_sketch_in"):
            assert told[name.replace("_in", "_out")] == 2 * float(told[name])
