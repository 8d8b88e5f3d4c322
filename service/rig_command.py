"""`firstfault drill --kind`: one fault of the rig, and the same run without it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from firstfault.drill.rig.catalogue import CATALOGUE
from firstfault.drill.rig.drilling import RigDrill, write_drill

from .drill_command import show_progress
from .ink import pad, wrap


def list_kinds() -> None:
    """Print each kind of fault, what it is, and the sites at which it can act."""
    width = max(len(kind) for kind in CATALOGUE) + 2
    for kind, entry in CATALOGUE.items():
        sites = ", ".join(entry.sites)
        lines = wrap(f"{entry.summary} ({sites})", first=pad(kind, width), rest=" " * width)
        sys.stdout.write("\n".join(lines) + "\n")


def write_rig_drill(drill: RigDrill, out: Path | None, twin: Path | None) -> None:
    """Run one drill of the rig and say where its log is and how to judge it.

    Raises:
        DrillError: a name is unknown, a value out of range, or torch is not installed.
    """
    progress = show_progress if sys.stderr.isatty() else None
    path = write_drill(drill, out, twin, progress)
    if progress is not None:
        sys.stderr.write("\r\x1b[K")
    sys.stdout.write(f"{path}\n")
    sys.stderr.write(f"firstfault: judge it with: firstfault replay {shlex.quote(str(path))}\n")
