"""The checksum of a tensor sees every bit and every place."""

from __future__ import annotations

import numpy as np
import pytest

from firstfault.drill.checksum import tensor_checksum

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
_MASK = (1 << 64) - 1


def _mix(value: int) -> int:
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def test_it_is_the_sum_that_its_docstring_states() -> None:
    values = np.random.default_rng(1).standard_normal(50).astype(np.float32)
    total = 0
    for place, bits in enumerate(values.view(np.uint32).tolist(), start=1):
        golden = (place * 0x9E3779B97F4A7C15) & _MASK
        total += (bits + _mix(golden ^ _MASK)) * (_mix(golden) | 1)
    assert tensor_checksum(torch.from_numpy(values)) == _mix(total & _MASK)


@pytest.mark.parametrize("bit", [0, 12, 23, 30, 31])
def test_one_flipped_bit_anywhere_changes_it(bit: int) -> None:
    values = np.random.default_rng(2).standard_normal(64).astype(np.float32)
    clean = tensor_checksum(torch.from_numpy(values))
    for place in range(len(values)):
        flipped = values.copy()
        flipped.view(np.uint32)[place] ^= np.uint32(1 << bit)
        assert tensor_checksum(torch.from_numpy(flipped)) != clean


def test_it_depends_on_places_and_on_the_bits_of_a_nan() -> None:
    assert tensor_checksum(torch.tensor([1.0, 2.0])) != tensor_checksum(torch.tensor([2.0, 1.0]))
    assert tensor_checksum(torch.tensor([0.0])) != tensor_checksum(torch.tensor([-0.0]))
    quiet, other = (
        torch.tensor([bits], dtype=torch.int32).view(torch.float32) for bits in (0x7FC00000, 0x7FC00001)
    )
    assert tensor_checksum(quiet) != tensor_checksum(other)


def test_a_view_in_another_memory_order_is_read_in_its_own_order() -> None:
    square = torch.arange(9.0).view(3, 3)
    assert tensor_checksum(square.T) == tensor_checksum(square.T.contiguous())
