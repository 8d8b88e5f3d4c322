"""The entry point of the command `firstfault`.

`replay` with plain arguments goes ahead by itself: the library that reads command lines takes as long to load
as judging a small file. Whatever it does not know for sure is left to that library, errors and help included.
"""

from __future__ import annotations

import gc
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

from .edge import last_edge, leave, outer_edge
from .quick_classes import defer_methods

_FLAGS: Mapping[str, str] = MappingProxyType({"--json": "as_json", "--details": "is_detailed"})
_VALUES: Mapping[str, str] = MappingProxyType({"--html": "html", "--run": "run", "--format": "format_name"})
_GARBAGE_AFTER_OBJECTS = 10_000
"""New objects after which garbage is looked for: what a replay makes is freed as it goes, but for cycles."""
_COMPLETION = "_FIRSTFAULT_COMPLETE"
"""Set by a shell that asks for what a command line may go on with."""


def main() -> NoReturn:
    """Run the command that the command line names, and end with its exit status."""
    request = None if _COMPLETION in os.environ else plain_replay(sys.argv[1:])
    if request is None:
        from .cli import main as run_any

        run_any()
    # A pool of threads that waits for matrices to multiply: none is large, and waiting costs each start.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    defer_methods()
    gc.disable()  # what is loaded stays, and looking through it again and again frees nothing
    with last_edge(), outer_edge():
        from .replay_command import ReplayRequest, run_replay

        gc.freeze()
        gc.set_threshold(_GARBAGE_AFTER_OBJECTS)
        gc.enable()
        status = run_replay(ReplayRequest(**request))
    leave(status)


def plain_replay(arguments: Sequence[str]) -> dict[str, Any] | None:
    """What a `ReplayRequest` is made of; None where the command line is another one, or not plain.

    >>> plain_replay(["replay", "--json", "a.csv"])["paths"], plain_replay(["replay", "--jsn", "a.csv"])
    (('a.csv',), None)
    """
    if not arguments or arguments[0] != "replay":
        return None
    request: dict[str, Any] = {}
    paths: list[str] = []
    rest = iter(arguments[1:])
    for one in rest:
        if one in _FLAGS:
            request[_FLAGS[one]] = True
        elif one in _VALUES:
            value = next(rest, "-")
            if value.startswith("-"):
                return None
            request[_VALUES[one]] = value
        elif one.startswith("-") and one != "-":
            return None
        else:
            paths.append(str(Path(one)))
    if not paths or "" in arguments:
        return None
    command = shlex.join(["firstfault", "replay", *paths])
    return {**request, "paths": tuple(paths), "command": command}


if __name__ == "__main__":
    main()
