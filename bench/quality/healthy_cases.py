"""Healthy curves as cases: recorded ones of real jobs, and surrogates fitted to them, for false alarms."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

import numpy as np

from bench.surrogate import RECORDED, like

from .case import Origin, Recording, Spec, Tier, Truth

SURROGATE_POINTS = 5000
"""Logged points of a surrogate: a fifth to twice the length of the curves that it is like."""
_COUNTERS = ("iteration", "step")
_HEALTHY = {Tier.CURVE: Truth(label="healthy")}


def surrogate_spec(seed: int) -> Spec:
    """A surrogate of one of the recorded curves, in turn: those held out from its fitting too."""
    return Spec(origin=Origin.SURROGATE, family=RECORDED[seed % len(RECORDED)].name, seed=seed)


def make_surrogate(spec: Spec) -> Recording:
    """A healthy curve after a recorded one."""
    (row,) = [one for one in RECORDED if one.name == spec.family]
    rng = np.random.default_rng([spec.seed, 17])
    loss_T = like(row, rng, SURROGATE_POINTS, correlation=row.correlation)
    run = f"{spec.family}-{spec.seed}"
    lines = [
        json.dumps({"run": run, "iteration": at, "loss": loss}).encode() for at, loss in enumerate(loss_T)
    ]
    return Recording(lines=lines, truths=_HEALTHY, logged=len(lines), healthy_points=len(lines))


def recorded_specs(folder: Path) -> Iterator[Spec]:
    """The recorded curves of a folder (csv with a counter and ``loss``), by name."""
    for path in sorted(folder.glob("*.csv")):
        if _losses(path):
            digest = blake2b(path.read_bytes(), digest_size=6).hexdigest()
            detail = {"path": str(path.resolve()), "digest": digest}
            yield Spec(origin=Origin.RECORDED, family=path.stem, seed=0, detail=detail)


def make_recorded(spec: Spec) -> Recording:
    """A recorded curve; its text ``nan`` and its empty cells stand for what was not recorded."""
    rows = _losses(Path(str(spec.detail["path"])))
    lines = [
        json.dumps({"run": spec.family, "iteration": iteration, "loss": loss}).encode()
        for iteration, loss in rows
    ]
    return Recording(lines=lines, truths=_HEALTHY, logged=len(lines), healthy_points=len(lines))


def _losses(path: Path) -> list[tuple[int, float]]:
    """(iteration, loss) of each recorded point; none where the file has no such columns."""
    with path.open(newline="", encoding="utf-8") as text:
        rows = [{str(name).strip(): cell for name, cell in row.items()} for row in csv.DictReader(text)]
    if not rows or "loss" not in rows[0]:
        return []
    counter = next((name for name in _COUNTERS if name in rows[0]), None)
    found = []
    for at, row in enumerate(rows):
        cell = (row["loss"] or "").strip().lower()
        if cell not in ("", "nan"):
            found.append((at if counter is None else int(float(row[counter])), float(cell)))
    return found
