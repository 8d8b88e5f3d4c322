"""A known sum through the real collectives: a wrong result names the member, or the chunk, that went wrong.

Every member m of a group sends integers x_m(p) that all of them can compute for themselves. They are so small
that each partial sum is exact in the type they are sent in, so that the result is the same in any order of
addition, and the deviation d = received - expected is zero to the bit. Who is accused of d != 0:

* all-gather: the member whose chunk arrives wrong at half of the others or more; the member at which the
  chunks of others arrive wrong, where it is not half of them;
* reduce-scatter and all-reduce: the member for which d = +-x_m wherever d is not zero: it was left out, or
  counted twice; else the members whose own result is wrong, where they are not half of the group; else all,
  since nothing tells them apart.

Reported is ``collective_checksum/<operation>``, the same constant from all members that are not accused.
Nothing waits for the device: the accusation is computed there.

Axes: N members, P positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed

from .hashing import checksum

if TYPE_CHECKING:
    from .readback import Readback
    from .watch import Watch

OPERATIONS = ("all_gather", "reduce_scatter", "all_reduce")
_EXACT = {torch.float32: 1 << 24, torch.float16: 1 << 11, torch.bfloat16: 1 << 8}
"""Greatest integer up to which every one is exact."""
_LARGEST = 8
"""Bound of the values: nine bits of either sign change a mantissa in every place that counts."""
LEAST_DEVIATIONS = 8
"""Wrong values from which on one member's values explain them: each agrees by luck one time in eight."""
MAX_CELLS = 1 << 22
"""Values of all members together that one member computes: 16 MB of float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveConfig:
    """What is sent, and how often."""

    every_iterations: int = 1024
    """Every how many iterations, from 1: a few small collectives then cost less than 1e-5 of the time."""
    positions: int = 4096
    """Values that each member sends, from 1: a few packets of every link."""
    dtype: torch.dtype = torch.float32
    """Type of the values: float32, float16 or bfloat16."""

    def __post_init__(self) -> None:
        for name in ("every_iterations", "positions"):
            if getattr(self, name) < 1:
                raise ValueError(f"collective_canary.{name} must be at least 1, got {getattr(self, name)}")
        if self.dtype not in _EXACT:
            raise ValueError(f"collective_canary.dtype must be one of {list(_EXACT)}, got {self.dtype}")


class CollectiveCanary:
    """The signal that sends known sums over the groups it is given, by name.

    It is a collective: every member of a group has to have it, or the others wait.
    """

    name = "collective_canary"

    def __init__(self, groups: Mapping[str, Any], config: CollectiveConfig | None = None) -> None:
        self.config = config or CollectiveConfig()
        self._groups = {name: group for name, group in groups.items() if _size(group) > 1}
        self._pending: tuple[int, dict[str, torch.Tensor]] | None = None

    def attach(self, watch: Watch) -> None:
        """Prepare for the device of ``watch``."""
        self._device = next((one.device for one in watch.module.parameters()), torch.device("cpu"))

    def at_step(self, iteration: int, out: Readback) -> None:
        """Report what the boundary before found, and send again if the next iteration is due."""
        if self._pending is not None and self._pending[0] == iteration:
            for metric, value in self._pending[1].items():
                out.put(metric, value)
        self._pending = None
        if (iteration + 1) % self.config.every_iterations == 0:
            values: dict[str, torch.Tensor] = {}
            for name, group in sorted(self._groups.items()):
                found = check_collectives(group, iteration + 1, self._device, self.config)
                values |= {f"collective_checksum/{op}/{name}": value for op, value in found.items()}
            self._pending = (iteration + 1, values)

    def detach(self) -> None:
        """Nothing is attached."""


def check_collectives(
    group: Any, seed: int, device: torch.device, config: CollectiveConfig | None = None
) -> dict[str, torch.Tensor]:
    """By operation the checksum of this member's deviation: that of zero for whoever is not accused."""
    config = config or CollectiveConfig()
    size, me = _size(group), torch.distributed.get_rank(group)
    per_member = max(1, min(config.positions, MAX_CELLS // size) // size)
    x_NP = known_values(size, per_member * size, seed, device, config.dtype)
    sent = x_NP[me].contiguous()
    sum_P = x_NP.float().sum(0)

    whole = torch.empty(size * sent.numel(), dtype=sent.dtype, device=device)
    torch.distributed.all_gather_into_tensor(whole, sent, group=group)
    gathered_NP = whole.view(size, -1).float() - x_NP.float()

    chunk = torch.empty(per_member, dtype=sent.dtype, device=device)
    torch.distributed.reduce_scatter_tensor(chunk, sent.clone(), group=group)
    scattered_P = torch.zeros_like(sum_P)
    at = slice(me * per_member, (me + 1) * per_member)
    scattered_P[at] = chunk.float() - sum_P[at]

    reduced = sent.clone()
    torch.distributed.all_reduce(reduced, group=group)
    reduced_P = reduced.float() - sum_P

    mine = torch.stack(
        [_wrong(gathered_NP), *(_as_row(_accusing(d, x_NP)) for d in (scattered_P, reduced_P))]
    )
    # Told to all: one value of each of the three for each member.
    told = torch.empty(size * mine.numel(), dtype=mine.dtype, device=device)
    torch.distributed.all_gather_into_tensor(told, mine.contiguous().view(-1), group=group)
    told_N3N = told.view(size, 3, size)
    accused = [_of_gather(told_N3N[:, 0]), _of_sum(told_N3N[:, 1]), _of_sum(told_N3N[:, 2])]
    return {
        op: checksum([torch.where(who_N[me], me + 1, 0).reshape(1)])
        for op, who_N in zip(OPERATIONS, accused, strict=True)
    }


def known_values(
    size: int, positions: int, seed: int, device: torch.device, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """x_NP: small integers other than zero, the same wherever they are computed.

    Raises:
        ValueError: so many members cannot be summed exactly in ``dtype``.
    """
    if size > _EXACT[dtype]:
        raise ValueError(f"a collective canary in {dtype} takes at most {_EXACT[dtype]} members, got {size}")
    largest = max(1, min(_LARGEST, _EXACT[dtype] // size))
    place = torch.arange(size * positions, dtype=torch.int64, device=device) + (seed << 24)
    mixed = (place * -0x61C8864680B583EB) ^ ((place * -0x40A7B892E31B1A47) >> 29)
    mixed = (mixed * -0x6B2FB644ECCEEE15) >> 40
    sign = 1 - 2 * (mixed & 1)
    return (((mixed >> 1) % largest + 1) * sign).to(dtype).view(size, positions)


def _wrong(deviation_NP: torch.Tensor) -> torch.Tensor:
    """For each row whether anything in it is wrong; NaN is."""
    return (~(deviation_NP == 0)).any(1).to(torch.int64)


def _accusing(deviation_P: torch.Tensor, x_NP: torch.Tensor) -> torch.Tensor:
    """By member: 2 where its values explain a deviation, 1 everywhere where something is wrong, else 0."""
    bad_P = ~(deviation_P == 0)
    x_NP = x_NP.float()
    # Of a few deviations some member's values are right by chance.
    is_enough = bad_P.sum() >= LEAST_DEVIATIONS
    explains_N = ((deviation_P == x_NP) | ~bad_P).all(1) | ((deviation_P == -x_NP) | ~bad_P).all(1)
    return bad_P.any() * (1 + (is_enough & explains_N).to(torch.int64))


def _as_row(values_N: torch.Tensor) -> torch.Tensor:
    return values_N.to(torch.int64)


def _of_gather(wrong_NN: torch.Tensor) -> torch.Tensor:
    """Who is accused, from what each receiver (row) says of the chunk of each sender (column)."""
    size = len(wrong_NN)
    others_NN = wrong_NN * (1 - torch.eye(size, dtype=wrong_NN.dtype, device=wrong_NN.device))
    senders_N = 2 * others_NN.sum(0) >= max(size - 1, 1)
    received_N = (others_NN * (~senders_N).to(others_NN.dtype)).sum(1) > 0
    return senders_N | received_N | wrong_NN.diagonal().bool()


def _of_sum(said_NN: torch.Tensor) -> torch.Tensor:
    """Who is accused, from what each member (row) says of its own result and of whom it would explain."""
    is_wrong_N = (said_NN > 0).any(1)
    # A member explains it if it does so to all that got something wrong, and is the only one that does.
    explains_N = ((said_NN == 2) | ~is_wrong_N[:, None]).all(0) & is_wrong_N.any()
    is_few = 2 * is_wrong_N.sum() < len(is_wrong_N)
    by_result_N = torch.where(is_few, is_wrong_N, is_wrong_N.any().expand_as(is_wrong_N))
    return torch.where(explains_N.sum() == 1, explains_N, by_result_N)


def _size(group: Any) -> int:
    return int(torch.distributed.get_world_size(group))
