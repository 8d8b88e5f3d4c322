"""How the ranks of an attempt lie in its mesh and on its hosts, kept beside what they reported.

One file for each attempt, its newest layout: groups of replicas and hosts of ranks are those of now.
"""

from __future__ import annotations

import gzip
import json
import logging
import zlib
from functools import lru_cache
from pathlib import Path

from firstfault.mesh import Layout

from .history_names import size_of, write_atomically

log = logging.getLogger(__name__)

_NAME = "layout.json.gz"
_LEVEL = 5
"""Of gzip: 100 000 ranks on 12 500 hosts are 150 kB, made in 0.1 s."""


def write_layout(folder: Path, layout: Layout) -> int:
    """Write the layout of the attempt whose files lie in ``folder``; how many more bytes than before.

    Raises:
        OSError: it could not be written; the one before is still there.
    """
    text = json.dumps(layout.to_plain(), separators=(",", ":"))
    packed = gzip.compress(text.encode(), _LEVEL, mtime=0)
    before = size_of(folder / _NAME)
    return write_atomically(folder / _NAME, lambda temporary: _fill(temporary, packed)) - before


def read_layout(folder: Path) -> Layout | None:
    """The newest layout of an attempt; None if none is known, or what is there cannot be read."""
    path = folder / _NAME
    try:
        found = path.stat()
        return _read(path, found.st_mtime_ns, found.st_size)
    except FileNotFoundError:
        return None
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError) as error:
        log.warning("a layout could not be read", extra={"file": str(path), "reason": str(error)})
        return None


@lru_cache(maxsize=8)  # 100 000 ranks take half a second to read, and longer to be put in groups
def _read(path: Path, changed_ns: int, size: int) -> Layout:
    """What the file holds; it is another one once it has changed."""
    del changed_ns, size
    return Layout.from_plain(json.loads(gzip.decompress(path.read_bytes())))


def _fill(path: Path, body: bytes) -> None:
    path.write_bytes(body)
