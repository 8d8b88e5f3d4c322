"""What a figure function gives."""

from __future__ import annotations

from dataclasses import dataclass

from .svg import Figure, draw


@dataclass(frozen=True, slots=True)
class Drawn:
    """A figure, whose caption says what the detector said."""

    figure: Figure

    @property
    def bytes(self) -> bytes:
        """The file."""
        return draw(self.figure)
