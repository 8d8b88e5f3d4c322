"""The sample logs as lines, rearranged in the ways that must not change a verdict."""

from __future__ import annotations

import gzip
import json
import random
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from detectors.verdict import canonical_bytes
from ingest.blocks import RecordBatch
from ingest.decode import Decoder, RawMessage
from service.pipeline import Pipeline

SAMPLE_LOGS = Path(__file__).parent.parent / "sample_logs"


@dataclass(frozen=True, slots=True)
class Truth:
    """One entry of the manifest."""

    name: str
    file: Path
    label: str
    ranks: tuple[int, ...]
    iteration: int | None


def manifest() -> list[Truth]:
    """What the sample logs hold, as stated beside them."""
    entries: list[dict[str, Any]] = tomllib.loads((SAMPLE_LOGS / "manifest.toml").read_text())["logs"]
    return [
        Truth(e["name"], SAMPLE_LOGS / e["file"], e["label"], tuple(e["ranks"]), e.get("iteration"))
        for e in entries
    ]


def lines_of(path: Path) -> list[bytes]:
    """The lines of a log, unpacked."""
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines()


def shuffled(lines: Sequence[bytes], rng: random.Random, bound: int = 64) -> list[bytes]:
    """An order in which no record comes more than ``bound`` iterations after a later one."""
    keyed = []
    for line in lines:
        fields = json.loads(line)
        keyed.append((fields.get("attempt", 0), fields["iteration"] + rng.uniform(0, bound), line))
    return [line for *_, line in sorted(keyed)]


def doubled(lines: Sequence[bytes], rng: random.Random) -> list[bytes]:
    """Each third line or so twice."""
    return [line for line in lines for _ in range(rng.choice((1, 1, 2)))]


def cut(lines: Sequence[bytes], sizes: Iterable[int]) -> Iterator[list[bytes]]:
    """The lines in pieces of the given sizes, the last size repeated."""
    begin, size, given = 0, 1, iter(sizes)
    while begin < len(lines):
        size = next(given, size)
        yield list(lines[begin : begin + size])
        begin += size


def batches(pieces: Iterable[Sequence[bytes]]) -> Iterator[RecordBatch]:
    """Each piece decoded, as one message of lines."""
    decoder = Decoder()
    for offset, piece in enumerate(pieces):
        yield decoder.decode([RawMessage("sample", offset, b"\n".join(piece))])


def verdict_bytes(pieces: Iterable[Sequence[bytes]]) -> list[bytes]:
    """The canonical verdict of every run in the pieces."""
    pipeline = Pipeline()
    for batch in batches(pieces):
        pipeline.feed(batch)
    return [canonical_bytes(verdict) for verdict in pipeline.verdicts()]
