"""Synthetic training curves with a known truth: healthy, benign and faulty, each from a seed.

Axes: T iterations. Noise of the loss is AR(1), 1.5 to 3 % of its level; the gradient norm is lognormal
(sigma 0.18) with 0.4 % blips of x1.8 to 3; the learning rate warms up and follows a cosine.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from detectors.base import Detector
from detectors.evidence import Annotation, Certainty, Evidence, Finding
from firstfault.telemetry import WHOLE_ITERATION, Event
from ingest.blocks import IterationBlock, NumberBlock

Series = NDArray[np.float64]

HEALTHY = ("h_exp", "h_power", "h_warmup", "h_stepdecay", "h_noisy")
BENIGN = ("b_spike", "b_datamix", "b_fp16", "b_lrrestart", "b_converged")
EXPLOSIONS = ("e_fast", "e_slow", "e_grad")
DRIFTS = ("d_slope", "d_shift", "d_const")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Columns over T iterations and the truth: ``onset`` is None where nothing is wrong."""

    name: str
    columns: Mapping[str, Series]
    onset: int | None = None
    twin: Mapping[str, Series] = field(default_factory=dict)
    """The same noise without the fault."""


def make_scenario(name: str, seed: int) -> Scenario:
    """The scenario ``name`` with everything drawn from ``seed``."""
    rng = np.random.default_rng([seed, sum(map(ord, name))])
    T = int(rng.integers(1600, 2401))
    t = np.arange(T, dtype=np.float64)
    base = _decline(name, T, rng)
    sigma = 0.22 if name == "h_noisy" else float(rng.uniform(0.015, 0.03))
    noise = np.exp(ar1(T, sigma, float(rng.uniform(0.0, 0.5)), rng))
    norm = _norms(T, rng)
    lr = 3e-4 * np.minimum(1.0, (t + 1) / 100) * (0.55 + 0.45 * np.cos(np.pi * t / T))
    twin = {"loss": base * noise, "grad_norm": norm.copy(), "lr": lr}
    low, high = (0.45, 0.75)
    onset = int(T * rng.uniform(low, high))
    columns = {metric: values.copy() for metric, values in twin.items()}
    is_faulty = name in EXPLOSIONS + DRIFTS
    _apply(name, columns, onset, rng)
    return Scenario(
        name=name, columns=columns, onset=onset if is_faulty else None, twin=twin if is_faulty else {}
    )


def _decline(name: str, T: int, rng: np.random.Generator) -> Series:
    t = np.arange(T, dtype=np.float64)
    if name == "h_exp":
        return np.asarray(2.0 + 6.0 * np.exp(-t / rng.uniform(150, 400)))
    if name == "h_warmup":
        hump = 0.12 * np.exp(-(((t - 260) / 90) ** 2))
        return np.asarray((2.2 + 7.0 * np.exp(-t / 130)) * (1 + hump))
    if name == "h_stepdecay":
        level = 2.0 + 4.0 * np.exp(-t / 120)
        for at in (0.3, 0.55, 0.8):
            level = level * np.where(t >= at * T, 1 - rng.uniform(0.25, 0.38), 1.0)
        return np.asarray(level)
    if name == "b_converged":
        return np.asarray(1.5 + 4.0 * np.exp(-t / 100))
    return np.asarray(1.2 + 9.0 * (t + 10) ** -rng.uniform(0.25, 0.45))


def ar1(T: int, sigma: float, phi: float, rng: np.random.Generator) -> Series:
    """AR(1) noise of standard deviation ``sigma``."""
    shocks = rng.normal(0.0, sigma * np.sqrt(1 - phi**2), T)
    values = np.empty(T)
    last = rng.normal(0.0, sigma)
    for at, shock in enumerate(shocks):
        last = phi * last + shock
        values[at] = last
    return values


def _norms(T: int, rng: np.random.Generator) -> Series:
    t = np.arange(T, dtype=np.float64)
    norm = (0.5 + 4.0 * np.exp(-t / 60)) * np.exp(rng.normal(0.0, 0.18, T))
    blips = rng.random(T) < 0.004
    norm[blips] *= rng.uniform(1.8, 3.0, int(blips.sum()))
    return np.asarray(norm)


def _apply(name: str, columns: dict[str, Series], onset: int, rng: np.random.Generator) -> None:
    loss, norm, lr = columns["loss"], columns["grad_norm"], columns["lr"]
    T = len(loss)
    after = np.maximum(0.0, np.arange(T) - onset + 1.0)
    if name == "e_fast":
        loss *= np.minimum(rng.uniform(1.15, 1.4) ** after, 30.0)
        norm *= np.minimum(1.5**after, 500.0)
    elif name == "e_slow":
        loss *= np.minimum(2.0 ** (after / rng.uniform(120, 200)), 50.0)
    elif name == "e_grad":
        norm *= np.minimum(rng.uniform(1.03, 1.08) ** after, 1000.0)
    elif name == "d_shift":
        loss[onset:] *= 1 + rng.uniform(0.025, 0.04)
    elif name == "d_slope":
        loss *= 1 + rng.uniform(0.08, 0.15) * after / after[-1]
    elif name == "d_const":
        loss[onset:] = loss[onset]
    elif name == "b_spike":
        for at in rng.integers(200, T - 60, 3):
            length, height = int(rng.integers(8, 26)), rng.uniform(2.0, 3.5)
            loss[at : at + length] *= 1 + (height - 1) * np.linspace(1.0, 0.05, length)
    elif name == "b_datamix":
        loss *= 1 + np.where(after > 0, rng.uniform(0.06, 0.10) * np.exp(-after / rng.uniform(150, 300)), 0.0)
        columns["data_stage"] = (after > 0).astype(np.float64)
    elif name == "b_fp16":
        for at in rng.integers(0, T, 9):
            norm[at] = np.inf
        columns["skipped"] = np.isinf(norm).astype(np.float64)
    elif name == "b_lrrestart":
        lr[onset:] = 3e-4 * (0.55 + 0.45 * np.cos(np.pi * (after[onset:] - 1) / (T - onset)))
        loss *= 1 + np.where(after > 0, rng.uniform(0.10, 0.16) * np.exp(-after / rng.uniform(100, 200)), 0.0)


def block_of(
    columns: Mapping[str, Series],
    *,
    first_iteration: int = 0,
    events: tuple[Event, ...] = (),
    attempt: int = 0,
) -> IterationBlock:
    """Columns of one unnamed rank (or of R ranks, T x R) as one block, every value present."""
    values = {name: np.asarray(v, np.float64).reshape(len(v), -1) for name, v in columns.items()}
    T, R = next(iter(values.values())).shape
    return IterationBlock(
        run="curve",
        attempt=attempt,
        iteration_T=np.arange(first_iteration, first_iteration + T, dtype=np.int64),
        microbatch_T=np.full(T, WHOLE_ITERATION, np.int32),
        ranks_R=np.arange(R, dtype=np.int32),
        numbers={name: NumberBlock(v, np.ones(v.shape, np.bool_)) for name, v in values.items()},
        events=events,
    )


def cut(block: IterationBlock, borders: Sequence[int]) -> Iterator[IterationBlock]:
    """The same positions as several blocks; events stay with the block that holds their iteration."""
    edges = [0, *sorted(set(borders) - {0, len(block)}), len(block)]
    for start, stop in itertools.pairwise(edges):
        last = int(block.iteration_T[stop - 1]) if stop < len(block) else 2**62
        before = int(block.iteration_T[start - 1]) if start else -(2**62)
        yield IterationBlock(
            run=block.run,
            attempt=block.attempt,
            iteration_T=block.iteration_T[start:stop],
            microbatch_T=block.microbatch_T[start:stop],
            ranks_R=block.ranks_R,
            numbers={
                name: NumberBlock(n.values_TR[start:stop].copy(), n.present_TR[start:stop].copy())
                for name, n in block.numbers.items()
            },
            events=tuple(event for event in block.events if before < event.iteration <= last),
            layout=block.layout,
        )


def judge(detector: Detector, blocks: Sequence[IterationBlock] | Iterator[IterationBlock]) -> list[Finding]:
    """The final findings: the last one of each key, after `finish`, in order of first appearance."""
    last: dict[tuple[str, str], Finding] = {}
    for block in blocks:
        _keep(last, detector.update(block))
    _keep(last, detector.finish())
    return list(last.values())


def _keep(last: dict[tuple[str, str], Finding], findings: Sequence[Finding]) -> None:
    for finding in findings:
        kind = finding.detector if isinstance(finding, Evidence) else finding.kind
        last[(kind, finding.key)] = finding


def confirmed(findings: Sequence[Finding]) -> list[Evidence]:
    """The confirmed evidence among ``findings``."""
    return [f for f in findings if isinstance(f, Evidence) and f.certainty is Certainty.CONFIRMED]


def annotated(findings: Sequence[Finding], kind: str) -> list[Annotation]:
    """The annotations of one kind among ``findings``."""
    return [f for f in findings if isinstance(f, Annotation) and f.kind == kind]


def assert_cut_invariant(
    make: Callable[[], Detector], block: IterationBlock, rng: np.random.Generator, *, each: bool = True
) -> None:
    """At once, at random cuts and one position at a time: the same final findings."""
    whole = judge(make(), [block])
    for _ in range(3):
        borders = rng.integers(1, len(block), 12).tolist()
        assert judge(make(), cut(block, borders)) == whole
    if each:
        assert judge(make(), cut(block, range(1, len(block)))) == whole


def assert_restores(make: Callable[[], Detector], block: IterationBlock, at: int) -> None:
    """A snapshot taken at position ``at`` and restored into a new detector continues exactly."""
    first, second = cut(block, [at])
    straight = make()
    straight.update(first)
    state = copy.deepcopy(straight.snapshot())
    resumed = make()
    resumed.restore(state)
    copied = copy.deepcopy(straight)
    expected = straight.update(second) + straight.finish()
    assert resumed.update(second) + resumed.finish() == expected
    assert copied.update(second) + copied.finish() == expected
    assert resumed.check() == straight.check()
