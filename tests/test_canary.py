"""The canary in a training job: what it finds, and that training never hears of it."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from firstfault import replay

torch: Any = pytest.importorskip("torch", reason="the canary runs on a model of torch")

pytestmark = pytest.mark.torch

from firstfault.torch_metrics.canary import Canary, CanaryConfig  # noqa: E402  # needs torch
from firstfault.torch_metrics.canary_batch import seeded  # noqa: E402
from firstfault.torch_metrics.canary_cadence import Cadence, is_fixed_batch  # noqa: E402
from firstfault.torch_metrics.canary_pass import Batch  # noqa: E402
from firstfault.torch_metrics.canary_state import seed_all, untouched  # noqa: E402
from firstfault.torch_metrics.recompute import RecomputeChecksums, RecomputeConfig  # noqa: E402

from .canary_builders import Board, batch_of, canary_every, small_model, train  # noqa: E402

CASES = (
    "ddp",
    "uneven",
    "faulty",
    "flaky",
    "sharded",
    "sharded_flat",
    "sharded_original",
    "tensor_parallel",
    "staged",
    "joined",
    "collective",
)
ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The logs of all jobs of three ranks, run once."""
    folder = tmp_path_factory.mktemp("jobs")
    command = [sys.executable, "-m", "tests.canary_ranks", str(folder), "3", *CASES]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False)
    assert done.returncode == 0
    return folder


@pytest.fixture
def verdict_of(jobs: Path) -> Callable[[str], Any]:
    return lambda case: replay(jobs / f"{case}.jsonl")[0]


def only_first(verdict: Any) -> Any:
    (incident,) = verdict["incidents"]
    assert incident["certainty"] == "confirmed"
    return incident["first"]


def test_training_is_bit_identical_with_a_canary() -> None:
    plain, watched = small_model(), small_model()
    random.seed(5)
    train(plain, None, microbatches=2)
    drawn, state = random.random(), torch.get_rng_state()
    random.seed(5)
    board = train(watched, canary_every(8), microbatches=2)
    assert len(board.of("canary_checksum")) == 24
    assert all(map(torch.equal, plain.state_dict().values(), watched.state_dict().values()))
    assert (watched.calls, watched.amax) == (plain.calls, plain.amax)
    assert random.random() == drawn
    assert torch.equal(torch.get_rng_state(), state)


def test_an_evaluation_right_before_the_boundary_changes_no_canary() -> None:
    found = []
    for is_training in (True, False):
        board, canary = Board(small_model()), canary_every(1)
        board.attach(canary)
        board.model(*batch_of(0))
        board.model.train(is_training)  # as an evaluation on one rank leaves it
        board.step(canary, 0)
        board.step(canary, 1)
        assert board.model.training is is_training
        found.append(board.of("canary_checksum"))
    assert found[0].keys() == {1}
    assert found[0] == found[1]


def test_a_canary_leaves_the_compiler_alone_which_takes_seconds_to_load(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in sys.modules if name.startswith("torch._inductor")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch._inductor", None)  # loading it raises
    before = torch.get_deterministic_debug_mode()
    assert len(train(small_model(), canary_every(4), 12).of("canary_checksum")) > 1
    assert torch.get_deterministic_debug_mode() == before


def test_a_canary_repeats_itself_and_its_batches_change() -> None:
    board = train(small_model(), canary_every(4), 60)
    first, again = board.of("canary_checksum"), board.of("repeat_checksum/canary")
    assert first == again
    assert len(set(first.values())) == len(first)
    assert list(board.of("canary_loss")) == [one for one in first if is_fixed_batch(one)]


def test_the_loss_of_the_fixed_batch_has_no_noise() -> None:
    model = small_model()
    canary, board = canary_every(1), Board(model)
    board.attach(canary)
    model(*batch())
    for iteration in range(8):
        board.step(canary, iteration)
    assert len(board.of("canary_loss")) > 2
    # the same parameters: the random state, which is the iteration's own, only moves the dropout
    assert len({round(float(value), 0) for value in board.of("canary_loss").values()}) == 1


def batch() -> tuple[Any, Any]:
    return torch.ones(5, 6), torch.zeros(5, dtype=torch.int64)


def test_hooks_and_gradients_of_the_parameters_never_hear_of_a_canary() -> None:
    model = small_model()
    canary, board = canary_every(1), Board(model)
    board.attach(canary)
    model(*batch()).backward()
    parameters: list[Any] = list(model.parameters())
    grads = [(one.grad, one.grad.clone(), one.grad._version) for one in parameters]
    versions = [one._version for one in [*model.parameters(), *model.buffers()]]
    called: list[str] = []
    for parameter in parameters:
        parameter.register_hook(lambda grad: called.append("hook"))
        parameter.register_post_accumulate_grad_hook(lambda one: called.append("after"))
    board.step(canary, 0)
    board.step(canary, 1)
    assert board.of("canary_checksum")
    assert called == []
    held = [(one.grad, one.grad, one.grad._version) for one in parameters]
    assert all(
        a[0] is b[0] and torch.equal(a[1], b[1]) and a[2] == b[2] for a, b in zip(grads, held, strict=True)
    )
    assert [one._version for one in [*model.parameters(), *model.buffers()]] == versions


def test_a_gradient_that_kernels_add_up_themselves_is_hashed_and_not_touched() -> None:
    class Fused(torch.autograd.Function):  # type: ignore[misc]  # torch is Any here
        @staticmethod
        def forward(ctx: Any, x: Any, weight: Any) -> Any:
            ctx.x, ctx.weight = x, weight
            return x @ weight

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            ctx.weight.main_grad.add_(ctx.x.t() @ grad)
            return None, torch.zeros_like(ctx.weight)

    class Model(torch.nn.Module):  # type: ignore[misc]  # torch is Any here
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3, 2))
            self.weight.main_grad = torch.full((3, 2), 5.0)

        def forward(self, x: Any) -> Any:
            return Fused.apply(x, self.weight).sum()

    sums = []
    for scale in (1.0, 2.0):
        model = Model()
        board = Board(model, example_batch=torch.full((2, 3), scale))
        canary = canary_every(1)
        board.attach(canary)
        board.step(canary, -1)
        board.step(canary, 0)
        assert torch.equal(model.weight.main_grad, torch.full((3, 2), 5.0))
        sums.append(board.of("canary_checksum")[0])
    assert sums[0] != sums[1]


@pytest.mark.parametrize("is_reentrant", [True, False])
def test_a_canary_runs_through_recomputation_of_either_kind(is_reentrant: bool) -> None:
    model, board = checkpointed(is_reentrant)
    canary = canary_every(1)
    board.attach(canary)
    model(torch.ones(2, 4)).backward()
    before = [one.grad.clone() for one in model.parameters()]
    board.step(canary, 0)
    board.step(canary, 1)
    assert board.of("canary_checksum") == board.of("repeat_checksum/canary") != {}
    assert all(torch.equal(one.grad, old) for one, old in zip(model.parameters(), before, strict=True))


def checkpointed(is_reentrant: bool, break_at: int | None = None) -> tuple[Any, Board]:
    """A model whose first half is recomputed, and whose recomputation number ``break_at`` comes out wrong."""
    from torch.utils.checkpoint import checkpoint

    torch.manual_seed(0)

    class Model(torch.nn.Module):  # type: ignore[misc]  # torch is Any here
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4))
            self.last = torch.nn.Linear(4, 1)
            self.calls = 0

        def forward(self, x: Any) -> Any:
            x = x.clone().requires_grad_()
            return self.last(checkpoint(self.inner, x, use_reentrant=is_reentrant)).sum()

    model = Model()

    def strike(_module: Any, _args: Any, output: Any) -> Any:
        model.calls += 1
        return output + (0.5 if model.calls == break_at else 0.0)

    model.inner[0].register_forward_hook(strike)
    return model, Board(model)


@pytest.mark.parametrize("is_reentrant", [True, False])
def test_recomputed_activations_are_compared_with_the_first_ones(is_reentrant: bool) -> None:
    # two calls in each iteration: the sixteenth is in the backward of iteration 7
    model, board = checkpointed(is_reentrant, break_at=16)
    signal = RecomputeChecksums(RecomputeConfig(every_iterations=1, looking_iterations=1))
    board.attach(signal)
    for iteration in range(10):
        model(torch.full((2, 4), float(iteration))).backward()
        board.step(signal, iteration)
    first, again = board.of("act_checksum/inner.0"), board.of("repeat_checksum/act/inner.0")
    assert signal.modules[0] == "inner.0"
    assert [iteration for iteration in first if first[iteration] != again[iteration]] == [7]
    assert "last" not in signal.modules


def test_without_recomputation_nothing_is_hooked_after_the_first_iterations() -> None:
    model = small_model()
    signal, board = RecomputeChecksums(RecomputeConfig(looking_iterations=1)), Board(model)
    board.attach(signal)
    model(*batch()).backward()
    board.step(signal, 0)
    assert signal.modules == []
    assert all(not part._forward_hooks for part in model.modules())


def test_ranks_that_measured_other_costs_meet_at_the_iterations_of_the_slower_one() -> None:
    dear, cheap = Cadence(0.01), Cadence(0.01)
    for cadence, cost in ((dear, 0.3), (cheap, 0.1)):
        cadence.step_took(0.1)
        cadence.canary_took(9.0)  # the first one compiles
        cadence.canary_took(cost)
    due = [{one for one in range(2000) if cadence.is_due(one)} for cadence in (dear, cheap)]
    assert due[0] < due[1]
    assert (dear.every, cheap.every) == (512, 128)


def test_the_cost_of_canaries_stays_inside_the_budget() -> None:
    cadence = Cadence(0.001)
    cadence.step_took(0.2)
    for _ in range(2):
        cadence.canary_took(0.5)
    assert 0.5 / (cadence.every * 0.2) <= 0.001


def test_drawn_batches_stay_valid_and_follow_from_the_iteration() -> None:
    tokens = torch.tensor([[5, 9, 2], [7, 5, 3]])
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    lengths = torch.tensor([0, 2, 3], dtype=torch.int32)
    batch = Batch((torch.randn(4, 3),), {"tokens": tokens, "mask": mask, "lengths": lengths, "flag": True})
    one, same, other = seeded(batch, 1), seeded(batch, 1), seeded(batch, 2)
    assert torch.equal(one.args[0], same.args[0])
    assert torch.equal(one.kwargs["tokens"], same.kwargs["tokens"])
    assert not torch.equal(one.args[0], other.args[0])
    assert not torch.equal(one.args[0], batch.args[0])
    assert set(one.kwargs["tokens"].view(-1).tolist()) <= set(tokens.view(-1).tolist())
    assert torch.equal(one.kwargs["mask"], mask)
    assert torch.equal(one.kwargs["lengths"], lengths)
    assert one.kwargs["flag"] is True


def test_what_a_forward_changes_is_put_back_where_others_hold_it() -> None:
    model = torch.nn.Module()
    held = [torch.zeros(2)]
    model.cache, model.seen, model.count = {"k": held}, [1, 2], 0
    model.generator = torch.Generator().manual_seed(1)
    drawn = torch.Generator().manual_seed(1).get_state()
    with untouched(model):
        seed_all(3)
        held[0] += 1
        model.seen.append(3)
        model.cache["new"] = 1
        model.count, model.extra = 5, 7
        torch.rand(1, generator=model.generator)
    assert held[0].tolist() == [0, 0]
    assert (model.seen, model.cache, model.count) == ([1, 2], {"k": held}, 0)
    assert not hasattr(model, "extra")
    assert torch.equal(model.generator.get_state(), drawn)


def test_a_model_that_a_canary_cannot_run_on_says_why() -> None:
    frozen = torch.nn.Linear(2, 2).requires_grad_(False)
    canary = Canary()
    Board(frozen).attach(canary)
    assert canary.why_off == "no parameter is trained"
    with pytest.raises(ValueError, match=r"canary.budget_share must be from 1e-6 to 1, got 0"):
        CanaryConfig(budget_share=0)


def test_replicas_are_bit_identical_with_a_canary(jobs: Path) -> None:
    for case in ("ddp", "sharded", "sharded_flat", "sharded_original", "staged"):
        for rank in range(3):
            assert json.loads((jobs / f"{case}.{rank}.json").read_text())["is_equal"]


def test_ranks_whose_canaries_are_made_of_collectives_agree_on_one_cadence(jobs: Path) -> None:
    found = [json.loads((jobs / f"joined.{rank}.json").read_text()) for rank in range(3)]
    assert found[0] == found[1] == found[2]
    assert found[0]["ran"] == [16, 32]
    assert found[0]["every"] > 0


@pytest.mark.parametrize(
    "case", ["ddp", "uneven", "sharded", "sharded_flat", "sharded_original", "staged", "collective_whole"]
)
def test_a_job_without_a_fault_gives_no_alarm(verdict_of: Callable[[str], Any], case: str) -> None:
    verdict = verdict_of(case)
    assert (verdict["label"], verdict["incidents"]) == ("healthy", [])


def test_a_canary_runs_through_layers_that_are_spread_over_ranks(jobs: Path) -> None:
    for rank in range(3):
        found = json.loads((jobs / f"tensor_parallel.{rank}.json").read_text())
        assert found == {"is_equal": True, "ran": [4, 8, 12, 16, 20], "off": {}}


def test_a_stage_of_a_pipeline_is_compared_with_its_replicas_alone(
    verdict_of: Callable[[str], Any], jobs: Path
) -> None:
    first = only_first(verdict_of("staged_faulty"))
    assert (first["ranks"], first["tie"], first["metric"]) == ([1, 2], True, "canary_checksum/stage")
    assert 12 <= first["interval"][0] < first["interval"][1] <= 20
    lines = [json.loads(line) for line in (jobs / "staged.jsonl").read_text().splitlines()]
    hashes = {(line["rank"], line["iteration"]): line.get("canary_checksum/stage") for line in lines}
    for iteration in range(4, 24, 4):
        assert hashes[1, iteration] == hashes[2, iteration] != hashes[0, iteration]


@pytest.mark.parametrize(
    ("case", "metric", "interval"),
    [
        ("faulty", "canary_checksum", [12, 16]),
        ("sharded_faulty", "canary_checksum", [12, 16]),
        ("sharded_flat_faulty", "canary_checksum", [12, 16]),
        ("sharded_original_faulty", "canary_checksum", [12, 16]),
        ("flaky", "repeat_checksum/canary", [12, 16]),
        ("collective_sender", "collective_checksum/all_gather/dp", [16, 20]),
        ("collective_receiver", "collective_checksum/reduce_scatter/dp", [16, 20]),
        ("collective_left_out", "collective_checksum/all_reduce/dp", [16, 20]),
    ],
)
def test_the_rank_that_computes_wrong_is_named(
    verdict_of: Callable[[str], Any], case: str, metric: str, interval: list[int]
) -> None:
    first = only_first(verdict_of(case))
    assert (first["ranks"], first["tie"], first["metric"]) == ([1], False, metric)
    assert first["interval"] == interval
