"""A 64-bit hash of the raw bits of tensors, by which replicas and repeated computations are compared.

``h = mix(sum_i (b_i + (b_i >> 32)) k_i + length  mod 2^64)`` over all 64-bit words ``b_i`` of the tensors in
memory order of their contiguous forms, one tensor after the other, the shift repeating the sign; ``k_i``
are odd pseudo-random constants of the position i alone. Addition modulo 2^64 has no rounding, so neither the
order of the sum nor how it is cut, nor the device, changes a bit. A flipped bit, or a change of either half
of one word, changes the hash for certain, since ``k_i`` is odd; two values exchanged, or several words
changed, go unseen with a chance of about 2^-32 at worst (only the highest bits of halves of words differ) and
2^-64 at best. Without the shift the signs of two numbers would cancel: a product hands on nothing from high
bits to low ones. Strides are not hashed, NaN compares by its bits, and -0.0 differs from 0.0.

Source: multilinear hashing, Lemire and Kaser, Strongly universal string hashing is fast, The Computer
Journal 57 (2014), section 3, over halves ``l + 2^32 h`` of words with the constants ``k_i`` and
``(2^32 + 1) k_i``, which makes one product of two; constants and finalizer of SplitMix64 (Steele, Lea,
Flood, OOPSLA 2014). We differ in that ``k_i`` is the product of a constant of the column and one of the row
of i in a table of `COLUMNS` columns, which keeps the table in the cache.

Axes: R rows, C columns of 64-bit words.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

import torch

log = logging.getLogger("firstfault.probe")
RowSums = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

COLUMNS = 32768
"""Words of a row: 256 KiB, which stay in the cache of a core, and torch splits no loop of this length over
threads, whose start costs more than the work."""
_WORD_BYTES = 8
_DEVICE_ROWS = 256
"""Rows hashed by one kernel on an accelerator: 64 MiB of products at a time."""
_PIECE_ROWS = 64
"""Rows of a strided tensor that are copied at a time: 16 MiB."""
_GOLDEN = 0x9E3779B97F4A7C15
_MASK_64 = (1 << 64) - 1


def checksum(tensors: torch.Tensor | Iterable[torch.Tensor]) -> torch.Tensor:
    """The hash of one or more tensors as one 64-bit integer on their device. Does not synchronize.

    >>> hex_of(checksum(torch.tensor([1.0, 2.0]))) == hex_of(checksum(torch.tensor([1.0, 2.0])[:, None]))
    True
    """
    held = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
    with torch.no_grad():
        sums: dict[torch.device, list[torch.Tensor]] = {}
        row, length = 0, 0
        for tensor in held:
            sums.setdefault(tensor.device, []).append(_sum(tensor.detach(), row))
            row += _rows_in(tensor)
            length += tensor.numel() * tensor.element_size()
        if not sums:
            return _mixed(torch.tensor(_signed(_GOLDEN)))
        parts = [torch.stack(some).sum() for some in sums.values()]
        total = parts[0]
        for part in parts[1:]:  # a model over several devices: the first one adds up
            total = total + part.to(total.device)
        return _mixed(total + _signed(_GOLDEN * (length + 1)))


def prepare(device: torch.device) -> None:
    """Make what hashing on a device needs: a kernel takes a second to compile, once."""
    _column_keys(device)
    _FUSED.kernel(device)


def hex_of(value: torch.Tensor) -> str:
    """A hash as it is written on the wire; waits for it.

    >>> len(hex_of(checksum([])))
    16
    """
    return f"{int(value.item()) & _MASK_64:016x}"


def mixed_places(start: int, count: int) -> torch.Tensor:
    """Pseudo-random integers of 64 bits, each of its place alone: the outputs of SplitMix64 seeded with 0."""
    return _mixed(torch.arange(start + 1, start + count + 1, dtype=torch.int64) * _signed(_GOLDEN))


def _sum(tensor: torch.Tensor, row: int) -> torch.Tensor:
    """``sum b_i k_i`` of one tensor whose first word is the first of row ``row``."""
    if _is_large_view(tensor):
        return torch.stack([_whole_sum(part, row + start) for part, start in _pieces(tensor)]).sum()
    return _whole_sum(tensor, row)


def _whole_sum(tensor: torch.Tensor, row: int) -> torch.Tensor:
    flat = _flat(tensor)
    rows = _rows_in(tensor)
    if rows == 0:
        return torch.zeros((), dtype=torch.int64, device=tensor.device)
    sums_R = torch.empty(rows, dtype=torch.int64, device=tensor.device)
    keys_C, keys_R = _column_keys(tensor.device), _row_keys(tensor.device, row + rows)[row : row + rows]
    width = COLUMNS * _WORD_BYTES // flat.element_size()
    full = flat.numel() // width
    if flat.device.type == "cpu":
        _sum_rows_by_core(flat, width, keys_C, sums_R)
        return torch.dot(sums_R, keys_R)
    fused = _FUSED.kernel(tensor.device) if flat.storage_offset() * flat.element_size() % 16 == 0 else None
    if fused is not None and full:
        with torch.get_device_module(tensor.device).device(tensor.device):
            sums_R[:full] = fused(_words(flat[: full * width]).view(full, COLUMNS), keys_C)
    for start in range(0, 0 if fused is not None else full, _DEVICE_ROWS):
        stop = min(full, start + _DEVICE_ROWS)
        words_RC = _words(flat[start * width : stop * width]).view(stop - start, COLUMNS)
        torch.sum(_folded(words_RC).mul_(keys_C), dim=1, out=sums_R[start:stop])
    if full < rows:
        words = _words(flat[full * width :])
        sums_R[full] = (_folded(words) * keys_C[: len(words)]).sum()
    return (sums_R * keys_R).sum()


def _sum_rows_by_core(flat: torch.Tensor, width: int, keys_C: torch.Tensor, sums_R: torch.Tensor) -> None:
    """The sum of each row, by one core in its cache."""
    folded_C, half = _ROW.folded, _ROW.half
    for part, total in zip(torch.split(flat, width), sums_R.unbind(), strict=True):
        words = _words(part)
        count = len(words)
        if count < COLUMNS:
            folded_C, keys_C = folded_C[:count], keys_C[:count]  # the last row
        torch.bitwise_right_shift(words, half, out=folded_C)
        folded_C.add_(words)
        torch.dot(folded_C, keys_C, out=total)


def _folded(words: torch.Tensor) -> torch.Tensor:
    """Each word plus its higher half."""
    return (words >> 32).add_(words)


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in one dimension, of a type whose bits may be viewed as integers."""
    plain = tensor.resolve_conj().resolve_neg()
    if plain.is_complex():
        plain = torch.view_as_real(plain)
    flat = plain.contiguous().view(-1)
    return flat.view(torch.uint8) if flat.element_size() == 1 else flat


def _is_large_view(tensor: torch.Tensor) -> bool:
    """Whether it must be copied to be read in order, and is worth being copied in pieces."""
    is_copied = tensor.is_complex() or not tensor.is_contiguous()
    return is_copied and tensor.dim() > 1 and _rows_in(tensor) > 2 * _PIECE_ROWS and len(tensor) > 1


def _pieces(tensor: torch.Tensor) -> Iterator[tuple[torch.Tensor, int]]:
    """Parts along the first dimension that fill whole rows but the last, each with its first row.

    Where a row ends with an entry of the first dimension only after all of them, the tensor is one part.
    """
    part_bytes = tensor[0].numel() * tensor.element_size()
    row_bytes = COLUMNS * _WORD_BYTES
    # the fewest parts that end where a row does, as often as fits into a piece
    step = row_bytes // math.gcd(row_bytes, part_bytes)
    step *= max(1, _PIECE_ROWS * row_bytes // (step * part_bytes))
    for start in range(0, len(tensor), step):
        yield tensor[start : start + step], start * part_bytes // row_bytes


def _rows_in(tensor: torch.Tensor) -> int:
    return -(-tensor.numel() * tensor.element_size() // (_WORD_BYTES * COLUMNS))


def _words(flat: torch.Tensor) -> torch.Tensor:
    """The bits as 64-bit integers, the last one filled up with zeros."""
    share = max(1, _WORD_BYTES // flat.element_size())
    if flat.numel() % share or flat.storage_offset() % share:
        filled = flat.new_zeros(-(-flat.numel() // share) * share)
        filled[: flat.numel()] = flat
        flat = filled
    return flat.view(torch.int64)


class _Fused:
    """The kernel that reads each word once, where there is one for the device."""

    def __init__(self) -> None:
        self._found: dict[torch.device, RowSums | None] = {}

    def kernel(self, device: torch.device) -> RowSums | None:
        """None where Triton is not installed, or compiles for no such device."""
        if device.type != "cuda":
            return None
        if device not in self._found:
            try:
                from .hash_kernel import row_sums

                with torch.cuda.device(device):
                    row_sums(
                        torch.zeros((1, COLUMNS), dtype=torch.int64, device=device), _column_keys(device)
                    )
                self._found[device] = row_sums
            except Exception as error:  # a compiler of its own, which may lack anything
                log.info("hashing without a fused kernel: %s: %s", type(error).__name__, error)
                self._found[device] = None
        return self._found[device]


_FUSED = _Fused()


class _Row(threading.local):
    """Room for a row, for each thread that hashes: memory that is new each time costs page faults."""

    def __init__(self) -> None:
        self.folded = torch.empty(COLUMNS, dtype=torch.int64)
        self.half = torch.tensor(32)
        """Bits of half a word, as what every operation makes of a number first."""


_ROW = _Row()


@lru_cache(maxsize=16)
def _column_keys(device: torch.device) -> torch.Tensor:
    return _keys(COLUMNS, 0, device)


def _row_keys(device: torch.device, rows: int) -> torch.Tensor:
    """At least ``rows`` multipliers, a power of two so that they are seldom made."""
    return _row_keys_of(device, max(1024, 1 << (rows - 1).bit_length()))


@lru_cache(maxsize=64)
def _row_keys_of(device: torch.device, rows: int) -> torch.Tensor:
    return _keys(rows, COLUMNS, device)


def _keys(count: int, start: int, device: torch.device) -> torch.Tensor:
    """The odd constants of ``count`` places from ``start`` on."""
    return (mixed_places(start, count) | 1).to(device)


def _mixed(value: torch.Tensor) -> torch.Tensor:
    """The finalizer of SplitMix64, a bijection of 64-bit integers."""
    value = (value ^ _shifted(value, 30)) * _signed(0xBF58476D1CE4E5B9)
    value = (value ^ _shifted(value, 27)) * _signed(0x94D049BB133111EB)
    return value ^ _shifted(value, 31)


def _shifted(value: torch.Tensor, bits: int) -> torch.Tensor:
    """Shifted right with zeros from the left, where torch repeats the sign."""
    return (value >> bits) & ((1 << (64 - bits)) - 1)


def _signed(value: int) -> int:
    """The signed integer of the same lowest 64 bits."""
    value &= _MASK_64
    return value - (1 << 64) if value >> 63 else value
