"""A 64-bit position-dependent hash of tensors by torch alone, the same on every device."""

from __future__ import annotations

from collections.abc import Iterable

import torch

_CHUNK = 1 << 20
_GOLDEN, _FIRST, _SECOND = -0x61C8864680B583EB, -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15
_VIEWS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int32, 16: torch.int32}


def checksum(tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    """The hash of all of them in their order, on their device, without waiting for it."""
    total: torch.Tensor | None = None
    offset = 1
    for tensor in tensors:
        flat = tensor.detach().contiguous().view(-1)
        bits = flat.view(_VIEWS[flat.element_size()])
        for start in range(0, bits.numel(), _CHUNK):
            part = bits[start : start + _CHUNK].to(torch.int64)
            place = torch.arange(offset, offset + part.numel(), device=part.device) * _GOLDEN
            one = ((part + _mix(~place)) * (_mix(place) | 1)).sum()
            total = one if total is None else total + one
            offset += part.numel()
    return torch.zeros((), dtype=torch.int64) if total is None else _mix(total)


def _mix(value: torch.Tensor) -> torch.Tensor:
    """The SplitMix64 finalizer; shifts of signed integers are made unsigned by a mask."""
    value = (value ^ ((value >> 30) & 0x3FFFFFFFF)) * _FIRST
    value = (value ^ ((value >> 27) & 0x1FFFFFFFFF)) * _SECOND
    return value ^ ((value >> 31) & 0x1FFFFFFFF)
