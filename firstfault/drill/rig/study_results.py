"""The results of a study: an append-only file, one JSON line a case. Standard library only."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ..plans import DrillError
from .spec import Kind, Site
from .study import Case

NONFINITE = ("nonfinite_now", "nonfinite_later")
HARMLESS = ("no_effect", "benign_jitter")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of one case."""

    key: str
    recipe: str
    seed: int
    site: Site
    kind: Kind
    bit: int | None
    magnitude: float
    iteration: int
    outcome: str
    is_same: bool
    """Whether every loss is bit-equal to the twin's: the fault was masked."""
    end_change: float
    """Mean loss at the end less the twin's, in nats; NaN where the run does not end finite."""
    end_sigma: float

    @property
    def is_harmless(self) -> bool:
        """Whether training ends as well as without the fault."""
        return self.outcome in HARMLESS


def result_of(case: Case, outcome: str, end_change: float, end_sigma: float, *, is_same: bool) -> Result:
    """The result of a case."""
    fault = case.fault
    return Result(
        key=case.key,
        recipe=case.recipe,
        seed=case.seed,
        site=fault.site,
        kind=fault.kind,
        bit=fault.bit,
        magnitude=fault.magnitude,
        iteration=fault.iteration,
        outcome=outcome,
        is_same=is_same,
        end_change=end_change,
        end_sigma=end_sigma,
    )


def append(path: Path, results: Iterable[Result]) -> None:
    """Add results to the file; what was there stays, also when this is cut short.

    Raises:
        OSError: the file cannot be written.
    """
    with path.open("a", encoding="utf-8") as file:
        for one in results:
            file.write(json.dumps(_plain(one)) + "\n")


def read(path: Path) -> list[Result]:
    """All results in the file, each case once; a line cut short by a kill is no result.

    Raises:
        OSError: the file is there and cannot be read.
        DrillError: a whole line is no result: what is damaged is not guessed at.
    """
    if not path.exists():
        return []
    found: dict[str, Result] = {}
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines[:-1], start=1):  # what follows the last newline was cut short
        if line:
            try:
                result = _result(json.loads(line))
            except (ValueError, KeyError, TypeError):
                raise DrillError(
                    f"{path} line {number} must be a result of the study (deleted, its case runs again), "
                    f"got {line[:60].decode(errors='replace')!r}"
                ) from None
            found[result.key] = result
    return list(found.values())


def mend(path: Path) -> None:
    """Drop a last line that was cut short, so that the next one begins a line of its own.

    Raises:
        OSError: the file is there and cannot be written.
    """
    if not path.exists():
        return
    held = path.read_bytes()
    whole = held.rfind(b"\n") + 1
    if whole < len(held):
        with path.open("r+b") as file:
            file.truncate(whole)


def _plain(one: Result) -> dict[str, object]:
    plain: dict[str, object] = {name: getattr(one, name) for name in Result.__slots__}
    for name in ("end_change", "end_sigma"):
        value: float = getattr(one, name)
        plain[name] = float(f"{value:.6g}") if math.isfinite(value) else "NaN"
    return plain


def _result(plain: dict[str, object]) -> Result:
    numbers = {name: float(str(plain[name])) for name in ("end_change", "end_sigma", "magnitude")}
    kinds = {"site": Site(str(plain["site"])), "kind": Kind(str(plain["kind"]))}
    return Result(**{**plain, **numbers, **kinds})  # type: ignore[arg-type]  # by name, as _plain wrote them
