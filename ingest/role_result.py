"""What was decided of the columns of a table or the keys of records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from .role_names import Role

ROW_NUMBER = "row number"


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """The meaning of names, by their place among ``names``.

    ``iteration`` None: rows are counted instead. ``metrics`` maps every other name that carries values to
    the name of its metric, each different; ``scales`` has the factors of those in another unit.
    ``summed`` are the metrics whose sum is the loss, where no name holds the whole of it. ``context`` are
    the names of a time, a counter or a rate: with them a row that is all nan is padding.
    """

    names: tuple[str, ...] = ()
    iteration: int | None = None
    epoch: int | None = None
    split: int | None = None
    identity: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    metrics: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))
    scales: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
    summed: tuple[str, ...] = ()
    context: frozenset[int] = frozenset()
    remarks: tuple[str, ...] = ()

    @property
    def counter(self) -> str:
        """What is used as iteration, for a person."""
        return ROW_NUMBER if self.iteration is None else self.names[self.iteration]

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """Each name that is read, and as what."""
        read = dict(self.metrics)
        read |= {at: role for role, at in self.identity.items()}
        if self.split is not None:
            read[self.split] = Role.SPLIT.value
        if self.iteration is not None:
            read[self.iteration] = Role.ITERATION.value
        return tuple((self.names[at], read[at]) for at in sorted(read))
