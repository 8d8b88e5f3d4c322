"""Other tools that read a training log: installed each into an environment of its own, and asked.

Every threshold is at its default. What a tool says at warning level or worse is an alarm; what its words
mean in our labels is `_MEANINGS`, read generously: growth counts for an explosion and for a drift, a spike
for an explosion, and a finding without a step is right wherever its label is.
"""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .cache import cache_folder
from .naive import Alarm

_TIMEOUT_S = 120.0
"""Longest time that a tool may take over one curve; all need less than a second for 3000 rows."""
_INSTALL_TIMEOUT_S = 300.0
_NAN, _GROWTH = frozenset({"nan"}), frozenset({"gradient_explosion", "silent_drift"})
_SPIKE, _STALL = frozenset({"gradient_explosion"}), frozenset({"silent_drift"})
_NOTHING: frozenset[str] = frozenset()
_RIGHT_ANYWAY = ("losslint step_backtrack",)
"""Findings that are true of a restarted job: no false alarm, and no fault."""
_LOUD = ("warning", "warn", "error", "critical", "fail")
_MEANINGS: Mapping[str, frozenset[str]] = {
    "losslint nan_inf": _NAN,
    "losslint divergence": _GROWTH,
    "losslint loss_spike": _SPIKE,
    "trainspotter spikes": _SPIKE,
    "trainspotter grad_norm": _SPIKE,
    "trainspotter divergence": _GROWTH,
    "trainspotter plateau": _STALL,
    "runmedic non_finite": _NAN,
    "runmedic divergence": _GROWTH,
    "runmedic loss_spikes": _SPIKE,
    "runmedic grad_spikes": _SPIKE,
    "trainproof TP-NAN": _NAN,
    "trainproof TP-NAN-GRAD": _NAN,
    "trainproof TP-DIVERGE": _GROWTH,
    "trainproof TP-DEAD-RUN": _STALL,
    "trainproof TP-FLAT": _STALL,
    "trainproof TP-GRAD-SPIKE": _SPIKE,
    "trainpulse nan_detector": _NAN,
    "trainpulse loss_spike": _SPIKE,
    "trainpulse gradient": _SPIKE,
    "trainpulse plateau": _STALL,
}
"""The labels for which a finding would be right; a finding that is not here is an alarm of no label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One tool: what to install, how to ask, and where its answer holds its findings."""

    name: str
    version: str
    command: Sequence[str]
    """After the interpreter's folder; ``{csv}``, ``{jsonl}`` and ``{out}`` are files."""
    read: Callable[[Any], list[tuple[str, float | None, str]]]
    """(check, step, severity) of each finding in the tool's JSON."""
    extra: str = ""

    @property
    def folder(self) -> Path:
        """Its environment."""
        return cache_folder() / "peers" / f"{self.name}-{self.version}"


def _losslint(answer: Any) -> list[tuple[str, float | None, str]]:
    return [
        (
            one["check"],
            next(iter(one["details"].get("steps", [])), one["details"].get("step")),
            one["severity"],
        )
        for one in answer["findings"]
    ]


def _trainspotter(answer: Any) -> list[tuple[str, float | None, str]]:
    return [
        (
            "non_finite" if "non-finite" in one["title"] else one["detector"],
            one["step_start"],
            one["severity"],
        )
        for one in answer["findings"]
    ]


def _runmedic(answer: Any) -> list[tuple[str, float | None, str]]:
    return [(one["check"], one.get("step"), one["severity"]) for run in answer for one in run["findings"]]


def _trainproof(answer: Any) -> list[tuple[str, float | None, str]]:
    return [
        (one["id"], _first_step(one["evidence"]), one["level"].lower())
        for report in answer["reports"]
        for one in report["findings"]
    ]


def _trainpulse(answer: Any) -> list[tuple[str, float | None, str]]:
    return [(one["detector"], one["step"], one["severity"]) for one in answer["alerts"]]


def _first_step(evidence: str) -> float | None:
    """The first of ``Steps: [700.0, 701.0]...``; no other evidence of this tool names a step."""
    head, _, rest = evidence.partition("Steps: [")
    number = rest.split(",")[0].rstrip("].")
    return float(number) if not head and number else None


PEERS = (
    Peer(
        name="losslint",
        version="0.4.1",
        command=["losslint", "check", "{csv}", "--json-out", "{out}"],
        read=_losslint,
    ),
    Peer(
        name="trainspotter",
        version="0.2.6",
        command=["trainspotter", "analyze", "{csv}", "--output", "json", "--out", "{out}"],
        read=_trainspotter,
    ),
    Peer(
        name="runmedic", version="0.1.1", command=["runmedic", "diagnose", "{csv}", "--json"], read=_runmedic
    ),
    Peer(
        name="trainproof",
        version="0.22.0",
        command=["trainproof", "doctor", "{csv}", "--json"],
        read=_trainproof,
    ),
    Peer(
        name="trainpulse",
        version="0.4.0",
        command=["python", "-m", "trainpulse.cli", "analyze", "{jsonl}", "-o", "{out}"],
        read=_trainpulse,
        extra="[cli]",
    ),
)


def install(peer: Peer) -> str:
    """Make the tool's environment; empty once it is there, else why it could not be made."""
    done = peer.folder / "installed"
    if done.exists():
        return ""
    steps = (
        [sys.executable, "-m", "venv", "--clear", str(peer.folder)],
        [
            str(peer.folder / "bin" / "python"),
            *("-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            f"{peer.name}{peer.extra}=={peer.version}",
        ],
    )
    for step in steps:
        try:
            ran = subprocess.run(
                step, capture_output=True, text=True, check=False, timeout=_INSTALL_TIMEOUT_S
            )
        except subprocess.TimeoutExpired:
            return f"{peer.name} {peer.version}: not installed within {_INSTALL_TIMEOUT_S:.0f} s"
        if ran.returncode:
            reason = (ran.stderr.strip().splitlines() or ["no reason given"])[-1]
            return f"{peer.name} {peer.version}: {reason[:200]}"
    done.touch()
    return ""


def ask(peer: Peer, columns: Mapping[str, Sequence[float]]) -> list[Alarm] | None:
    """What the tool alarms on, of a curve; None where it gives no answer that can be read."""
    with tempfile.TemporaryDirectory(prefix="firstfault-peer-") as name:
        folder = Path(name)
        files = {"csv": folder / "log.csv", "jsonl": folder / "log.jsonl", "out": folder / "out.json"}
        _write(columns, files["csv"], files["jsonl"])
        command = [part.format(**files) for part in peer.command]
        command[0] = str(peer.folder / "bin" / command[0])
        try:
            ran = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S, cwd=folder
            )
            answer = files["out"].read_text() if files["out"].exists() else ran.stdout
            findings = peer.read(json.loads(answer))
        except (subprocess.TimeoutExpired, ValueError, KeyError, TypeError):
            return None
    return alarms_of(peer.name, findings)


def alarms_of(name: str, findings: Sequence[tuple[str, float | None, str]]) -> list[Alarm]:
    """Findings at warning level or worse as alarms, by step, then those without one."""
    loud = [
        (step, _meaning(name, check))
        for check, step, severity in findings
        if severity in _LOUD and f"{name} {check}" not in _RIGHT_ANYWAY
    ]
    steps = [(int(step), labels) for step, labels in loud if step is not None]
    named = sorted(steps, key=lambda mark: mark[0])
    unnamed = dict.fromkeys(labels for step, labels in loud if step is None)
    return [*(Alarm(step, labels) for step, labels in named), *(Alarm(None, labels) for labels in unnamed)]


def _meaning(name: str, check: str) -> frozenset[str]:
    if check == "non_finite":
        return _NAN
    return _MEANINGS.get(f"{name} {check}", _NOTHING)


def _write(columns: Mapping[str, Sequence[float]], table: Path, lines: Path) -> None:
    """The curve as the two formats that the tools read: each under the names that they know."""
    names = {"iteration": "step", "loss": "loss", "grad_norm": "grad_norm", "lr": "learning_rate"}
    used = {name: columns[name] for name in names if not all(math.isnan(value) for value in columns[name])}
    rows = list(zip(*used.values(), strict=True))
    with table.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow([names[name] for name in used])
        writer.writerows([[int(row[0]), *row[1:]] for row in rows])
    with lines.open("w", encoding="utf-8") as out:
        for row in rows:
            record = dict(zip([names[name] for name in used], [int(row[0]), *row[1:]], strict=True))
            out.write(json.dumps(record) + "\n")
