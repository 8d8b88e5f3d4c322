"""Anything at all as a log: read to its end or refused as unreadable, in time that grows as its size."""

from __future__ import annotations

import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.errors import UnreadableInput
from ingest.file_source import FileSource
from ingest.jobs import Job, JobFile

LOGS = [
    log["text"].encode()
    for log in tomllib.loads((Path(__file__).parent / "log_tricks.toml").read_text("utf-8"))["log"]
]
WORDS = (
    b"loss", b"step", b"iteration", b"epoch", b"grad_norm", b"lr", b"rank", b"nan", b"-inf", b"1.#QNAN",
    b"0", b"-1", b"1e400", b"2.5e-3", b"195,153", b"56.4G", b"12%", b"1/100", b"[5/100]", b"=", b":",
    b": ", b"|", b",", b" ", b"\t", b"\n", b"\r", b"\r\n", b"\b", b"\x1b[1m", b"\x1b[2K", b"{", b"}",
    b"[", b"]", b"(", b")", b'"', b"'", b"\\", b"null", b"NaN", b"Infinity", b"[rank3]:", b"3: ",
    b"2021-01-02 03:04:05", b"it/s", b"OVERFLOW!", b"#", b"nanxxx", b"tensor(", b"\xff",
    b"\xe2\x96\x88", b"\x00", b"inf", b"--------", b"log_history", b"values", b"Xid",
)  # fmt: skip
SUFFIXES = ("log", "csv", "tsv", "json", "jsonl", "txt", "tfevents", "wandb")


def read(path: Path) -> int:
    """The records of the file; an `UnreadableInput` is an answer too."""
    source = FileSource(Job("run", (JobFile(str(path)),)))
    records = 0
    try:
        while not source.is_exhausted:
            records += sum(len(batch) for batch in source.poll(0.1))
    except UnreadableInput:
        return 0
    finally:
        source.close()
    return records


@st.composite
def mutants(draw: st.DrawFn) -> bytes:
    """A log of some tool, cut, doubled and overwritten in places."""
    data = bytearray(draw(st.sampled_from(LOGS)))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(data)))
        match draw(st.integers(0, 3)):
            case 0:
                data[at : at + draw(st.integers(1, 40))] = b""
            case 1:
                data[at:at] = draw(st.sampled_from(WORDS)) * draw(st.sampled_from([1, 3, 50]))
            case 2:
                data[at:at] = draw(st.sampled_from(LOGS))
            case _:
                data[at:at] = draw(st.binary(max_size=8))
    return bytes(data)


def soups() -> st.SearchStrategy[bytes]:
    """Words of logs in any order."""
    return st.lists(st.sampled_from(WORDS), max_size=120).map(b"".join)


@settings(max_examples=120, deadline=None)
@given(data=st.one_of(mutants(), soups()), suffix=st.sampled_from(SUFFIXES))
def test_no_bytes_raise_anything_but_unreadable(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, suffix: str
) -> None:
    path = tmp_path_factory.getbasetemp() / f"fuzz.{suffix}"
    path.write_bytes(data)
    assert read(path) >= 0


FAMILIES: dict[str, Callable[[int], bytes]] = {
    "one letter": lambda n: b"a" * n,
    "one word": lambda n: b"loss " * (n // 5),
    "digits": lambda n: b"step 1 loss 0." + b"1" * n,
    "exponents": lambda n: b"1e" * (n // 2),
    "pairs on one line": lambda n: b"loss=1.5, " * (n // 10),
    "names of their own": lambda n: b"".join(b"key%d=1.5 " % k for k in range(n // 12)),
    "braces": lambda n: b"{" * n,
    "brackets": lambda n: b"[" * n,
    "parentheses": lambda n: b"(" * n,
    "quotes": lambda n: b"'" * n,
    "open strings": lambda n: b'{"a": "' * (n // 7),
    "blanks": lambda n: b"step 1" + b" " * n + b"loss 2",
    "colours": lambda n: b"\x1b[" * (n // 2),
    "backspaces": lambda n: b"loss 1.5" * (n // 16) + b"\b" * (n // 2),
    "redraws": lambda n: b" 1%| | 1/100 loss=2\r" * (n // 20),
    "equals": lambda n: b"=" * n,
    "colons": lambda n: b"a:" * (n // 2),
    "bars": lambda n: b"| " * (n // 2),
    "commas": lambda n: b"," * n,
    "prefixes": lambda n: b"[rank0]:" * (n // 8),
    "shapes of their own": lambda n: b"".join(
        b"%s loss %d\n" % (b"abcdefgh"[k % 7 :] * (k % 60 + 1), k) for k in range(n // 250)
    ),
    "rulers": lambda n: b"| a | b |\n|" + b"- " * (n // 2) + b"x\n",
    "fractions": lambda n: b"1/" * (n // 2),
    "slashes": lambda n: b"/a" * (n // 2),
    "dots": lambda n: b"loss" + b"." * n + b"1",
    "words and blanks": lambda n: b"loss  " * (n // 6) + b"1",
    "times": lambda n: b"2021-01-02 03:04:05 " * (n // 20),
    "keys in quotes": lambda n: b"{'loss': " * (n // 9),
    "tables": lambda n: b"a,b\n" + b"1,2\n" * (n // 4),
    "lines": lambda n: b"step 1 loss 2.5\n" * (n // 16),
    "json lines": lambda n: b'{"step": 1, "loss": 2.5}\n' * (n // 25),
    "deep json": lambda n: b'{"a": [' * (n // 14) + b"1" + b"]}" * (n // 14),
    "tensors": lambda n: b"TP rank 0:\ntensor([1.0," + b" 1.0," * (n // 5) + b"])",
    "wrapped": lambda n: b"iteration 1 | lm loss: 2.5 | learning\n rate: 1e-4 |\n" * (n // 52),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_four_times_the_size_costs_no_sixteen_times_the_work(family: str, tmp_path: Path) -> None:
    spent = []
    for size in (1 << 13, 1 << 15):
        path = tmp_path / f"{size}.log"
        path.write_bytes(FAMILIES[family](size) + b"\n")
        least = float("inf")
        for _ in range(2):
            begin_s = time.process_time()
            read(path)
            least = min(least, time.process_time() - begin_s)
        spent.append(least)
    # what it costs to begin with is in both; 10 ms: below it nothing can be told
    assert spent[1] < 10 * spent[0] or spent[1] < 0.01
