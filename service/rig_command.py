"""`firstfault drill --kind`: one fault of the rig, and the same run without it."""

from __future__ import annotations

import shlex
import sys
from dataclasses import fields
from pathlib import Path

from firstfault.drill.log import log_path
from firstfault.drill.rig import DrillError
from firstfault.drill.rig.catalogue import CATALOGUE
from firstfault.drill.rig.drilling import RigDrill, write_drill
from firstfault.drill.rig.layouts import LAYOUTS

from .drill_command import tell_log
from .ink import pad, wrap


def list_kinds() -> None:
    """Print the layouts, and each kind of fault, what it is, and the sites at which it can act."""
    sys.stdout.write(f"\nlayouts (--layout): {', '.join(LAYOUTS)}\n")
    sys.stdout.write("\nkinds of fault (--kind), and the sites at which each can act (--site):\n")
    width = max(len(kind) for kind in CATALOGUE) + 2
    for kind, entry in CATALOGUE.items():
        sites = ", ".join(entry.sites)
        lines = wrap(f"{entry.summary} ({sites})", first=pad(kind, width), rest=" " * width)
        sys.stdout.write("\n".join(lines) + "\n")


def refuse_beside_all(asked: RigDrill, scenario: str | None, twin: Path | None) -> None:
    """Refuse what ``--all`` would not heed.

    Raises:
        DrillError: one of the options that say what is drilled is given.
    """
    usual = RigDrill()
    given = [one.name for one in fields(asked) if getattr(asked, one.name) != getattr(usual, one.name)]
    given += ["scenario"] * (scenario is not None) + ["twin"] * (twin is not None)
    if given:
        raise DrillError(f"--all drills every scenario with its own settings, got --{given[0]} too")


def is_of_rig(asked: RigDrill, scenario: str | None, twin: Path | None = None) -> bool:
    """Whether the rig is asked for, and not a scenario.

    Raises:
        DrillError: both are asked for, or what describes a fault is given without its kind.
    """
    of_both = {"ranks", "iterations", "seed", "engine"}
    given = [
        one.name for one in fields(asked) if one.name not in of_both and getattr(asked, one.name) is not None
    ]
    given += ["twin"] * (twin is not None)
    if given and scenario is not None:
        raise DrillError(f"--scenario has its fault and its layout, got --{given[0]} too")
    if given and asked.kind is None and asked.layout is None:
        raise DrillError(f"--{given[0]} is of one fault or of a layout: give --kind or --layout too")
    return bool(given)


def write_rig_drill(drill: RigDrill, out: Path | None, twin: Path | None) -> None:
    """Run one drill of the rig and say where its log is and how to judge it.

    Raises:
        DrillError: a name is unknown, a value out of range, or torch is not installed.
    """
    path = tell_log(lambda progress: write_drill(drill, out, twin, progress))
    if twin is not None:
        paths = shlex.join([str(path), str(log_path(f"{drill.kind}-twin", twin))])
        sys.stderr.write(f"firstfault: see what the fault changed: firstfault compare {paths}\n")
