"""``python -m bench.figures``: draw the pictures, fill in the pages."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from .catalogue import FIGURES
from .pages import INDEX, NAMES, PAGES, PICTURES, with_parts


def main(arguments: Sequence[str]) -> int:
    """Write the pictures asked for, or all, and every page; with ``--check`` 1 if anything would change."""
    parser = argparse.ArgumentParser(prog="python -m bench.figures")
    parser.add_argument("names", nargs="*", metavar="NAME", help="pictures, as stall-fires; default: all")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit status 1 if anything would change"
    )
    parser.add_argument("--pages-only", action="store_true", help="leave the pictures as they are")
    asked = parser.parse_args(arguments)
    unknown = [name for name in asked.names if name not in FIGURES]
    if unknown:
        parser.error(f"pictures must be of {', '.join(FIGURES)}, got {', '.join(unknown)}")
    changed = 0
    for name in () if asked.pages_only else asked.names or FIGURES:
        changed += put(PICTURES / f"{name}.svg", FIGURES[name]().bytes, is_check=asked.check)
    for name in (*NAMES, INDEX):
        path = PAGES / f"{name}.md"
        if path.exists():
            text = with_parts(name, path.read_text(encoding="utf-8"))
            changed += put(path, text.encode(), is_check=asked.check)
    return int(asked.check and changed > 0)


def put(path: Path, content: bytes, *, is_check: bool) -> bool:
    """Write a file if that changes it, and say so; whether it does."""
    if path.exists() and path.read_bytes() == content:
        return False
    print(f"{'would change' if is_check else 'wrote'} {path.relative_to(PAGES.parent.parent)}", flush=True)
    if not is_check:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return True


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
