"""Cases of the detectors of values that must be equal or finite.

Axes: T iterations, R ranks.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from detectors.agreement import Agreement
from detectors.checksum_vote import ChecksumVote
from detectors.linear_checksum import LinearChecksum
from detectors.nonfinite import Nonfinite
from detectors.repeat import Repeat
from tests.block_builders import block, data_parallel, masked

from .case import Case, Run

T = 300
CHECK_EACH = 10
REPEAT_EACH = 5
Draw = Callable[[np.random.Generator], Run]


def nonfinite() -> list[Case]:
    """A NaN that one rank has first, and fp16 training that finds its loss scale."""
    return [
        Case(name="a NaN in one rank's loss", make=Nonfinite, draw=_nan("loss"), is_live=True),
        Case(
            name="a NaN in one rank's gradient norm",
            make=Nonfinite,
            draw=_nan("local_grad_norm"),
            is_live=True,
        ),
        Case(
            name="the same, a bfloat16 job whose loss stays finite",
            make=Nonfinite,
            draw=_nan("gradient"),
            is_live=True,
        ),
        Case(name="healthy, fp16 with a loss scale", make=Nonfinite, draw=_loss_scaling),
    ]


def checksum_vote() -> list[Case]:
    """One replica that departs, in groups of several sizes, given or learned."""
    return [
        *(
            Case(
                name=f"one of {ranks} replicas departs", make=ChecksumVote, draw=_departs(ranks), is_live=True
            )
            for ranks in (3, 8, 64)
        ),
        Case(
            name="one of 2 replicas departs (a tie of both)",
            make=ChecksumVote,
            draw=_departs(2),
            is_live=True,
        ),
        Case(
            name="one of 8 departs, no layout",
            make=ChecksumVote,
            draw=_departs(8, has_layout=False),
            is_live=True,
        ),
        Case(name="healthy, ZeRO-1", make=ChecksumVote, draw=_shards),
    ]


def agreement() -> list[Case]:
    """A rank whose reduced norm is its own, over exact and over rounded agreement."""
    return [
        *(
            Case(
                name=f"one rank's norm is {off:g} off, others bit-equal",
                make=Agreement,
                draw=_norms(off),
                is_live=True,
            )
            for off in (1e-2, 1e-6)
        ),
        *(
            Case(
                name=f"one rank's norm is {off:g} off, others round at 2e-7",
                make=Agreement,
                draw=_norms(off, rounding=2e-7),
                is_live=True,
            )
            for off in (1e-2, 1e-4)
        ),
        Case(name="healthy, each rank rounds its own way", make=Agreement, draw=_norms(0.0, rounding=2e-7)),
        Case(
            name="healthy, local norms under an agreed name", make=Agreement, draw=_norms(0.0, rounding=0.2)
        ),
    ]


def repeat() -> list[Case]:
    """A rank whose passes go wrong with some probability, 30 repetitions from the onset on."""
    return [
        *(
            Case(
                name=f"a pass of one rank is wrong with probability {q:g}",
                make=Repeat,
                draw=_repeated(q),
                is_live=True,
                expected=1 - (1 - q) ** (2 * 30),
            )
            for q in (0.003, 0.01, 0.05, 0.3)
        ),
        Case(name="healthy, a job that is not deterministic", make=Repeat, draw=_repeated(0.5, of_all=True)),
    ]


def linear_checksum() -> list[Case]:
    """Reductions of eight ranks with rounding noise that go wrong in each of the four ways."""
    faults = {
        "one rank's contribution is missing": _reduced("missing"),
        "one rank's contribution counts twice": _reduced("doubled"),
        "one rank's result is 0.1 % off": _reduced("result"),
        "the same result, 1 % off, on all ranks": _reduced("sum"),
    }
    return [
        *(Case(name=name, make=LinearChecksum, draw=draw, is_live=True) for name, draw in faults.items()),
        Case(name="healthy, rounding of 1e-7", make=LinearChecksum, draw=_reduced("")),
        Case(
            name="healthy, heavy-tailed rounding of 1e-3",
            make=LinearChecksum,
            draw=_reduced("", rounding=1e-3),
        ),
    ]


def _nan(metric: str) -> Draw:
    def draw(rng: np.random.Generator) -> Run:
        rank, onset = int(rng.integers(8)), int(rng.integers(100, 250))
        loss_TR, norm_TR = np.exp(rng.normal(0.0, 0.1, (2, T, 8)))
        reduced_TR = np.repeat(np.exp(rng.normal(0.0, 0.1, (T, 1))), 8, axis=1)
        first = loss_TR if metric == "loss" else norm_TR
        first[onset, rank] = np.nan
        norm_TR[onset, rank] = np.nan
        reduced_TR[onset:] = np.nan
        norm_TR[onset + 1 :] = np.nan
        if metric != "gradient":
            loss_TR[onset + 1 :] = np.nan
        whole = block(loss=loss_TR, local_grad_norm=norm_TR, grad_norm=reduced_TR, layout=data_parallel(8))
        return Run(block=whole, onset=onset, ranks=(rank,))

    return draw


def _loss_scaling(rng: np.random.Generator) -> Run:
    """The scale starts at 2^16 to 2^24, falls to 2^12 by skips, doubles each 200 steps and falls again."""
    scale, target = 2.0 ** int(rng.integers(16, 25)), 2.0**12
    since, rows = 0, []
    for _ in range(2000):
        overflows = scale > target or rng.random() < 1e-3
        rows.append((scale, overflows))
        since = 0 if overflows else since + 1
        scale = scale / 2 if overflows else scale * 2 if since % 200 == 199 else scale
    scale_T, skip_T = (np.array(column, np.float64) for column in zip(*rows, strict=True))
    norm_T1 = np.where(skip_T > 0, np.inf, np.exp(rng.normal(0.0, 0.1, len(rows))))[:, None]
    eight = np.ones((1, 8))
    return Run(
        block=block(
            loss=np.exp(rng.normal(0.0, 0.05, (len(rows), 8))),
            grad_norm=norm_T1 * eight,
            loss_scale=scale_T[:, None] * eight,
            skipped=skip_T[:, None] * eight,
            layout=data_parallel(8),
        )
    )


def _departs(ranks: int, *, has_layout: bool = True) -> Draw:
    def draw(rng: np.random.Generator) -> Run:
        sums_TR = np.repeat(rng.integers(1, 1 << 60, (T, 1)), ranks, axis=1)
        rank, onset = int(rng.integers(ranks)), int(rng.integers(100, 250))
        sums_TR[onset:, rank] += rng.integers(1, 1 << 30, T - onset)
        off_TR = np.broadcast_to(np.arange(T)[:, None] % CHECK_EACH != 0, sums_TR.shape)
        layout = data_parallel(ranks) if has_layout else None
        named = tuple(range(ranks)) if ranks == 2 else (rank,)
        return Run(
            block=block(param_checksum=masked(sums_TR, off_TR), layout=layout), onset=onset, ranks=named
        )

    return draw


def _shards(rng: np.random.Generator) -> Run:
    own_TR = rng.integers(1, 1 << 60, (T, 8))
    same_TR = np.repeat(rng.integers(1, 1 << 60, (T, 1)), 8, axis=1)
    layout = data_parallel(8, sharding="zero1")
    return Run(block=block(optim_checksum=own_TR, param_checksum=same_TR, layout=layout))


def _norms(off: float, rounding: float = 0.0) -> Draw:
    def draw(rng: np.random.Generator) -> Run:
        norm_TR = np.exp(rng.normal(0.0, 0.1, (T, 1))) * (1.0 + rounding * rng.normal(size=(T, 8)))
        if not off:
            return Run(block=block(grad_norm=norm_TR))
        rank, onset = int(rng.integers(8)), int(rng.integers(100, 250))
        norm_TR[onset:, rank] *= 1.0 + off
        return Run(block=block(grad_norm=norm_TR), onset=onset, ranks=(rank,))

    return draw


def _repeated(q: float, *, of_all: bool = False) -> Draw:
    def draw(rng: np.random.Generator) -> Run:
        shape = (T, 8)
        first_TR = np.repeat(rng.integers(1, 1 << 60, (T, 1)), 8, axis=1)
        again_TR = first_TR.copy()
        rank, onset = int(rng.integers(8)), T - 30 * REPEAT_EACH
        wrong = np.zeros((2, *shape), np.bool_)
        wrong[:, slice(None) if of_all else slice(onset, None), slice(None) if of_all else rank] = True
        wrong &= rng.random((2, *shape)) < q
        first_TR[wrong[0]] += 1
        again_TR[wrong[1]] += 2
        off_TR = np.broadcast_to(np.arange(T)[:, None] % REPEAT_EACH != 0, shape)
        sums = {
            "canary_checksum": masked(first_TR, off_TR),
            "repeat_checksum/canary": masked(again_TR, off_TR),
        }
        return Run(block=block(sums), onset=None if of_all else onset, ranks=() if of_all else (rank,))

    return draw


def _reduced(fault: str, rounding: float = 1e-7) -> Draw:
    def draw(rng: np.random.Generator) -> Run:
        in_TR = rng.normal(0.0, 1.0, (T, 8))
        rank, onset = int(rng.integers(8)), int(rng.integers(100, 250))
        summed_T = in_TR.sum(axis=1)
        if fault in ("missing", "doubled"):
            summed_T[onset:] += (1.0 if fault == "doubled" else -1.0) * in_TR[onset:, rank]
        if fault == "sum":
            summed_T[onset:] *= 1.01
        noise_T = rng.standard_t(5, T) if rounding > 1e-5 else rng.normal(size=T)
        scale_T = np.abs(in_TR).sum(axis=1)
        out_TR = np.repeat(((summed_T + rounding * scale_T * noise_T) / 8)[:, None], 8, axis=1)
        if fault == "result":
            out_TR[onset:, rank] *= 1.001
        whole = block(grad_sketch_in=in_TR, grad_sketch_out=out_TR, layout=data_parallel(8))
        named = tuple(range(8)) if fault == "sum" else (rank,)
        return Run(block=whole, onset=onset if fault else None, ranks=named if fault else ())

    return draw
