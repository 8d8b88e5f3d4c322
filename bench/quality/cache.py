"""What was recorded and judged before: outside the repository, found again by what made it.

A recording is named by its spec and the source of what made it; a judgement also by the source of all
that judges. So a run that was ended goes on where it was, and what changed is made anew.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import zstandard

from .case import Recording, Tier, Truth

ROOT = Path(__file__).parent.parent.parent
JUDGES = ("firstfault", "ingest", "detectors", "service")
"""Packages that a log passes on its way to a verdict."""
_WITHOUT_SAY = ("study", "drilling", "page")
"""Parts of the rig that only ask for its runs or tell of them, by the beginnings of their names."""
RIG_SOURCES = tuple(
    path.relative_to(ROOT).as_posix()
    for path in sorted((ROOT / "firstfault" / "drill" / "rig").glob("*.py"))
    if not path.name.startswith(_WITHOUT_SAY)
)
"""What decides what a job of the rig says, and what is true of it."""


def cache_folder() -> Path:
    """Where recordings, judgements and the environments of peers are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "firstfault" / "quality"


@lru_cache(maxsize=8)
def source_digest(parts: tuple[str, ...]) -> str:
    """A digest of all Python source under ``parts`` (folders or files of the repository)."""
    digest = blake2b(digest_size=6)
    for path in sorted(_sources(parts)):
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _sources(parts: Iterable[str]) -> Iterable[Path]:
    for part in parts:
        place = ROOT / part
        found = [place] if place.is_file() else place.rglob("*.py")
        # the drill makes logs and judges none
        yield from (path for path in found if part != "firstfault" or "drill" not in path.parts)


def save_recording(path: Path, recording: Recording) -> None:
    """Keep a recording, whole or not at all."""
    head = {
        "truths": {tier.value: _plain_truth(truth) for tier, truth in recording.truths.items()},
        "logged": recording.logged,
        "log_interval": recording.log_interval,
        "healthy_points": recording.healthy_points,
    }
    text = b"\n".join([json.dumps(head).encode(), *recording.lines])
    write_whole(path, zstandard.ZstdCompressor(level=3).compress(text))


def load_recording(path: Path) -> Recording | None:
    """The recording kept under ``path``, if there is one and it is whole: a damaged one is made again."""
    held = _held(path)
    try:
        return None if held is None else _recording_from(held)
    except (zstandard.ZstdError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _recording_from(held: bytes) -> Recording:
    head, *lines = zstandard.ZstdDecompressor().decompress(held).split(b"\n")
    plain = json.loads(head)
    return Recording(
        lines=lines,
        truths={Tier(tier): Truth.from_plain(truth) for tier, truth in plain["truths"].items()},
        logged=plain["logged"],
        log_interval=plain["log_interval"],
        healthy_points=plain["healthy_points"],
    )


def save_plain(path: Path, plain: Mapping[str, Any]) -> None:
    """Keep an object of JSON, whole or not at all."""
    write_whole(path, json.dumps(plain).encode())


def load_plain(path: Path) -> dict[str, Any] | None:
    """The object kept under ``path``, if there is one and it is whole."""
    held = _held(path)
    try:
        loaded = None if held is None else json.loads(held)
    except ValueError:
        return None
    return loaded if isinstance(loaded, dict) else None


def _held(path: Path) -> bytes | None:
    """What is kept; None where nothing is, also where it was deleted just now."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that is never seen half written."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    for is_last in (False, True):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            part.write_bytes(data)
            part.replace(path)
            return
        except FileNotFoundError:
            # the cache was emptied in between: once more
            if is_last:
                raise


def _plain_truth(truth: Truth) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(truth)
