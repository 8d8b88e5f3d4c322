"""The two recorded runs that the demo plays: as lines to send, and as a curve to show.

They ship inside the package (``service/demo_logs``): copies of two sample logs made by the drill.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import resources

_FOLDER = "demo_logs"


@dataclass(frozen=True, slots=True)
class Recording:
    """One recorded run. ``lines[i]`` belongs to iteration ``iterations[i]``."""

    run: str
    lines: tuple[bytes, ...]
    iterations: tuple[int, ...]
    medians: dict[int, float] = field(default_factory=dict)
    """Per iteration the median of the ranks' losses; NaN where any of them is not finite."""

    @property
    def last_iteration(self) -> int:
        """The greatest iteration in it."""
        return max(self.iterations)

    def losses(self, sent: int) -> list[float]:
        """The loss curve of the first ``sent`` lines, by iteration."""
        reached = self.iterations[sent - 1] if sent else -1
        return [loss for iteration, loss in self.medians.items() if iteration <= reached]


def demo_recordings() -> list[Recording]:
    """The recorded runs of the package, by name.

    Raises:
        FileNotFoundError: the installation is not complete.
    """
    folder = resources.files(__package__).joinpath(_FOLDER)
    found = [entry for entry in folder.iterdir() if ".jsonl" in entry.name] if folder.is_dir() else []
    files = sorted(found, key=lambda entry: entry.name)
    if not files:
        raise FileNotFoundError(f"{_FOLDER} holds no recorded run")
    recordings = []
    for entry in files:
        raw = entry.read_bytes()
        text = gzip.decompress(raw) if entry.name.endswith(".gz") else raw
        recordings.append(read_recording(text.splitlines()))
    return recordings


def read_recording(lines: Sequence[bytes]) -> Recording:
    """A recording of JSON ``lines`` of one run, in the order in which they were written."""
    iterations: list[int] = []
    losses: dict[int, list[float]] = {}
    run = ""
    for line in lines:
        record = json.loads(line)
        run = record["run"]
        iterations.append(record["iteration"])
        if "loss" in record:
            losses.setdefault(record["iteration"], []).append(float(record["loss"]))
    medians = {iteration: _median(values) for iteration, values in sorted(losses.items())}
    return Recording(run, tuple(lines), tuple(iterations), medians)


def _median(values: list[float]) -> float:
    if not all(math.isfinite(value) for value in values):
        return math.nan
    return sorted(values)[(len(values) - 1) // 2]
