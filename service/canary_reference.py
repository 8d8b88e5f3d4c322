"""A preflight that went well, which a later one on the same device model is compared with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from firstfault.preflight import PreflightError

if TYPE_CHECKING:
    from firstfault.preflight.running import Crew


@dataclass(frozen=True, slots=True)
class Reference:
    """What a healthy run on the same device model found."""

    path: Path
    start: Mapping[str, Any]
    lines: Sequence[Mapping[str, Any]]
    """The records of its rank 0, in order."""

    @property
    def rounds(self) -> int:
        """Rounds that can be compared."""
        return len(self.lines)

    @classmethod
    def read(cls, path: Path) -> Reference:
        """The reference in a file that ``--out`` wrote.

        Raises:
            PreflightError: it cannot be read, or is something else.
        """
        try:
            lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
        except (OSError, ValueError) as error:
            raise PreflightError(f"--reference {path} must be what --out wrote: {error}") from error
        start = next((one for one in lines if "workload" in one), None)
        own = [one for one in lines if one.get("rank") == 0 and "canary_checksum/products" in one]
        if start is None or not own:
            raise PreflightError(f"--reference {path} must be what --out wrote, got no rounds of rank 0")
        return cls(path, start, own)

    def joined(self, crew: Crew) -> tuple[dict[str, Any], int]:
        """The start of a run in which the reference is more than half of the ranks, and how many it is.

        It is known to be right, so that a rank alone that differs from it is in the minority.

        Raises:
            PreflightError: it was made on another device model, software or workload.
        """
        own = {
            "workload": crew.workload,
            "device_models": crew.device_models[0],
            "software": crew.software[0],
        }
        for name, value in own.items():
            held = self.start.get(name)
            first = held[0] if isinstance(held, list) and held else held
            if first != value:
                raise PreflightError(
                    f"--reference {self.path} must be of the same {name}: it has {first!r},"
                    f" here is {value!r}; make a new one with --out on a healthy host"
                )
        ranks = len(crew.hosts)
        count = ranks + 1
        start = crew.start()
        start |= {"world_size": ranks + count, "mesh": [["dp", ranks + count]]}
        start["hosts"] = [*crew.hosts, *["reference"] * count]
        start["device_models"] = [*crew.device_models, *[own["device_models"]] * count]
        start["software"] = [*crew.software, *[own["software"]] * count]
        start.pop("device_ids", None)
        return start, count
