"""What a figure function gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .svg import Figure, Panel, draw
from .trace import Trace, describe, marks_of


@dataclass(frozen=True, slots=True)
class Drawn:
    """A figure, whose caption says what the detector said."""

    figure: Figure

    @property
    def bytes(self) -> bytes:
        """The file."""
        return draw(self.figure)


def drawn(
    title: str,
    trace: Trace,
    panels: Sequence[Panel],
    onset: int | None = None,
    *,
    x_range: tuple[float, float] | None = None,
) -> Drawn:
    """Panels over the iterations of a trace, with its marks; ``onset`` is where the fault truly begins."""
    marks, span = marks_of(trace, onset)
    return Drawn(
        Figure(
            title=title,
            caption=describe(trace),
            x_label="iteration",
            panels=panels,
            marks=marks,
            span=span,
            x_range=x_range,
        )
    )
