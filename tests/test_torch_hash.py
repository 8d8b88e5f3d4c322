"""The 64-bit hash of tensors: what changes it, and what may not."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from firstfault.torch_metrics import checksum, hashing, hex_of
from firstfault.torch_metrics.hashing import COLUMNS

pytestmark = pytest.mark.torch

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
DTYPES = [
    torch.uint8,
    torch.int8,
    torch.bool,
    torch.float8_e4m3fn,
    torch.bfloat16,
    torch.float16,
    torch.int16,
    torch.float32,
    torch.int32,
    torch.float64,
    torch.int64,
    torch.complex64,
    torch.complex128,
]


def plain_mix(value: int) -> int:
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def plain_checksum(parts: list[bytes]) -> str:
    """The definition, word by word."""

    def key(place: int) -> int:
        return plain_mix((place + 1) * _GOLDEN & _MASK) | 1

    total, row = 0, 0
    for part in parts:
        filled = part + b"\0" * (-len(part) % 8)
        for at in range(len(filled) // 8):
            word = int.from_bytes(filled[8 * at : 8 * at + 8], "little", signed=True)
            total += (word + (word >> 32)) * key(at % COLUMNS) * key(COLUMNS + row + at // COLUMNS)
        row += -(-len(part) // (8 * COLUMNS))
    return f"{plain_mix((total + _GOLDEN * (sum(map(len, parts)) + 1)) & _MASK):016x}"


def raw(tensor: torch.Tensor) -> bytes:
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return bytes(tensor.contiguous().view(-1).view(torch.uint8).tolist())


def some(length: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    size = torch.empty((), dtype=dtype).element_size()
    noise = torch.randint(0, 256, (length * size,), dtype=torch.uint8, generator=generator)
    if dtype is torch.bool:
        return noise > 127
    if dtype.is_complex:
        half = torch.float32 if dtype is torch.complex64 else torch.float64
        return torch.view_as_complex(noise.view(half).view(-1, 2))
    return noise.view(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_hash_is_that_of_its_definition(dtype: torch.dtype) -> None:
    for length in (0, 1, 2, 3, 5, 64, 257):
        tensor = some(length, dtype)
        assert hex_of(checksum(tensor)) == plain_checksum([raw(tensor)])


@pytest.mark.parametrize("length", [COLUMNS - 1, COLUMNS, COLUMNS + 1])
def test_the_hash_is_that_of_its_definition_over_several_rows(length: int) -> None:
    tensors = [some(length, torch.float32), some(7, torch.bfloat16), some(2 * length, torch.int16, 1)]
    assert hex_of(checksum(tensors)) == plain_checksum([raw(tensor) for tensor in tensors])


@settings(max_examples=40)
@given(st.integers(0, 999), st.integers(0, 31))
def test_any_flipped_bit_changes_the_hash(at: int, bit: int) -> None:
    words = some(1000, torch.int32)
    before = hex_of(checksum(words))
    words[at] ^= (1 << bit) - (1 << 32 if bit == 31 else 0)
    assert hex_of(checksum(words)) != before


@settings(max_examples=40)
@given(st.integers(0, COLUMNS * 2 - 1), st.integers(0, COLUMNS * 2 - 1))
def test_two_exchanged_values_change_the_hash(one: int, other: int) -> None:
    values = some(COLUMNS * 2, torch.float32)
    before = hex_of(checksum(values))
    values[[one, other]] = values[[other, one]]
    is_same = bool(values.view(torch.int32)[one] == values.view(torch.int32)[other])
    assert (hex_of(checksum(values)) == before) is is_same


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_two_flipped_signs_do_not_cancel(dtype: torch.dtype) -> None:
    values = torch.linspace(1.0, 2.0, 4096).to(dtype)
    hashes = {hex_of(checksum(values))}
    for at in range(1, 100):
        flipped = values.clone()
        flipped[[3, 3 + at]] *= -1.0  # of 32 bits, the third begins the higher half of a word
        hashes.add(hex_of(checksum(flipped)))
    assert len(hashes) == 100


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_views_hash_as_their_copies(dtype: torch.dtype) -> None:
    whole = some(COLUMNS * 3 * 7, dtype).view(-1, 3, 7)
    views = [
        whole.permute(2, 0, 1),
        whole[1:],
        whole[:, 1],
        whole[:, :, 3:5],
        whole.view(-1)[5:-3],
        whole[0, 0, 0],
    ]
    assert [hex_of(checksum(one)) for one in views] == [hex_of(checksum(one.clone())) for one in views]


def test_large_views_are_hashed_piece_by_piece_as_their_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashing, "_PIECE_ROWS", 2)
    for dtype in (torch.uint8, torch.bfloat16, torch.float32):
        whole = some(COLUMNS * 4 * 12 // dtype.itemsize, dtype).view(96, -1)
        views = [whole.t(), whole[:, : whole.shape[1] * 7 // 8], whole.view(-1, 96).t()[:, 3:]]
        assert [hex_of(checksum(one)) for one in views] == [hex_of(checksum(one.clone())) for one in views]


def test_lazy_conjugates_hash_by_their_values() -> None:
    value = some(100, torch.complex64)
    assert hex_of(checksum(value.conj())) == hex_of(checksum(value.conj().resolve_conj()))


def test_what_is_equal_as_a_number_but_not_in_its_bits_is_told_apart() -> None:
    zeros = torch.tensor([0.0, -0.0])
    quiet = torch.tensor([0x7FC00000, 0x7FC00001], dtype=torch.int32).view(torch.float32)
    assert len({hex_of(checksum(one)) for one in (*zeros, *quiet)}) == 4


def test_zeros_of_unequal_length_are_told_apart() -> None:
    assert len({hex_of(checksum(torch.zeros(length))) for length in range(100)}) == 100


def test_the_order_of_tensors_counts() -> None:
    one, other = some(10, torch.float32), some(10, torch.float32, 1)
    assert hex_of(checksum([one, other])) != hex_of(checksum([other, one]))


def test_hundreds_of_hashes_of_one_changed_value_are_all_different() -> None:
    values = some(COLUMNS + 5, torch.int32)
    hashes = set()
    for change in range(300):
        values[change * 32] += 1
        hashes.add(hex_of(checksum(values)))
    assert len(hashes) == 300


def test_hashing_keeps_no_graph_and_changes_nothing() -> None:
    values = torch.nn.Parameter(torch.ones(5))
    found = checksum(values)
    assert not found.requires_grad
    assert values.tolist() == [1.0] * 5


def test_the_fused_kernel_gives_the_same_sums() -> None:
    pytest.importorskip("triton")
    program = (
        "import torch\n"
        "from firstfault.torch_metrics.hash_kernel import BLOCK, ROWS, row_sums\n"
        "torch.manual_seed(0)\n"
        "for rows in (1, ROWS, ROWS + 1):\n"
        "    words = torch.randint(-2**63, 2**63 - 1, (rows, 2 * BLOCK))\n"
        "    keys = torch.randint(-2**63, 2**63 - 1, (2 * BLOCK,)) | 1\n"
        "    assert torch.equal(row_sums(words, keys), ((words + (words >> 32)) * keys).sum(1))\n"
    )
    # a process of its own: what interprets the kernel on the CPU is chosen when triton is imported
    environ = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_an_accelerator_hashes_as_the_host_does() -> None:
    for dtype in DTYPES:
        tensor = some(COLUMNS * 3 + 17, dtype)
        assert hex_of(checksum(tensor.cuda())) == hex_of(checksum(tensor))
