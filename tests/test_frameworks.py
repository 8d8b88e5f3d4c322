"""The integrations under the real frameworks: what they report, and that training stays as it was."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import firstfault

from .framework_program import ITERATIONS

pytestmark = pytest.mark.torch

FIRST = {"hf": 1, "lightning": 0, "accelerate": 0, "megatron": 1}
"""The number that each gives its first iteration."""


@dataclass(frozen=True, slots=True)
class Trained:
    """What the program left behind."""

    digests: Mapping[str, Sequence[str]]
    lines: Mapping[str, Sequence[Mapping[str, Any]]]

    def values(self, name: str, metric: str) -> dict[int, Any]:
        """A metric by iteration."""
        return {line["iteration"]: line[metric] for line in self.lines[name] if metric in line}

    def events(self, name: str, kind: str) -> list[Mapping[str, Any]]:
        """The events of a kind."""
        return [line for line in self.lines[name] if line.get("event") == kind]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """All trainings of the program, in one process of its own."""
    missing = [name for name in ("transformers", "lightning", "accelerate") if find_spec(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    folder = tmp_path_factory.mktemp("frameworks")
    command = [sys.executable, "-m", "tests.framework_program", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "the probe failed" not in done.stderr
    lines = {name: read(folder / f"{name}.jsonl") for name in FIRST}
    lines |= {f"rank{rank}": read(folder / f"parallel-rank{rank}.jsonl") for rank in (0, 1)}
    return Trained(json.loads(done.stdout.splitlines()[-1]), lines)


def read(path: Path) -> list[Mapping[str, Any]]:
    """The lines of a log."""
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("name", FIRST)
def test_parameters_are_those_of_a_training_without_it(trained: Trained, name: str) -> None:
    without, with_probe = trained.digests[name]
    assert with_probe == without


@pytest.mark.parametrize("name", FIRST)
def test_each_iteration_has_its_loss_under_the_frameworks_own_number(trained: Trained, name: str) -> None:
    losses = trained.values(name, "loss")
    assert list(losses) == list(range(FIRST[name], FIRST[name] + ITERATIONS))
    assert all(0 < loss < 20 for loss in losses.values())


def test_the_loss_is_the_mean_over_microbatches(trained: Trained) -> None:
    # both train the same model on the same data, and count from 0
    assert trained.values("accelerate", "loss") == pytest.approx(trained.values("lightning", "loss"))


def test_evaluations_and_checkpoints_are_told_by_the_trainers_own_numbers(trained: Trained) -> None:
    assert list(trained.values("hf", "eval_loss")) == [3, 6]
    saved = trained.events("hf", "checkpoint")
    assert [(one["iteration"], Path(one["path"]).name) for one in saved] == [
        (4, "checkpoint-4"),
        (6, "checkpoint-6"),
    ]
    assert list(trained.values("lightning", "eval_loss")) == [1, 3, 5]
    assert [one["iteration"] for one in trained.events("lightning", "checkpoint")] == [1, 3, 5]


def test_what_the_function_of_a_loop_returns_is_reported(trained: Trained) -> None:
    norms = trained.values("megatron", "grad_norm")
    assert list(norms) == list(range(1, ITERATIONS + 1))
    assert set(trained.values("megatron", "skipped").values()) == {0}


def test_gradients_are_seen_before_and_behind_the_function_that_reduces_them(trained: Trained) -> None:
    before, after = (trained.values("megatron", name) for name in ("local_grad_norm", "grad_norm"))
    assert list(before) == list(after)
    assert list(before.values()) == pytest.approx([2 * norm for norm in after.values()])


def test_the_wrapper_is_found_that_callbacks_are_not_given(trained: Trained) -> None:
    (told,) = [one for one in trained.events("rank0", "run_start") if "mesh" in one]
    assert (told["mesh"], told["sharding"]) == ([["dp", 2]], "none")
    assert trained.values("rank0", "grad_norm") == trained.values("rank1", "grad_norm")
    local = [trained.values(name, "local_grad_norm") for name in ("rank0", "rank1")]
    assert all(one != other for one, other in zip(*(each.values() for each in local), strict=True))


@pytest.mark.parametrize("name", FIRST)
def test_each_training_has_one_start_and_one_end(trained: Trained, name: str) -> None:
    assert {one["iteration"] for one in trained.events(name, "run_start")} == {0}
    assert [one["iteration"] for one in trained.events(name, "run_end")] == [FIRST[name] + ITERATIONS - 1]


def test_a_framework_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    monkeypatch.setitem(sys.modules, "pytorch_lightning", None)
    with pytest.raises(ImportError, match=r"firstfault\.hf_callback needs transformers"):
        firstfault.hf_callback()
    with pytest.raises(ImportError, match=r"firstfault\.lightning_callback needs lightning"):
        firstfault.lightning_callback()
