"""What every reader of logs offers: lines become records, and it can say what it understood.

Two kinds of formats: those read line by line, which can be followed while they grow (`LineDecoder`),
and those read as a whole (`DocumentReader`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from firstfault.wire import Defaults

from .blocks import RecordBatch
from .decode_config import DecodeConfig
from .sniff import Format


@dataclass(frozen=True, slots=True, kw_only=True)
class FileConfig:
    """How files are read."""

    piece_bytes: int = 8 << 20
    """Bytes of text decoded at once: 8 MiB, 40 000 to 200 000 rows, beyond which nothing gets faster."""
    decode: DecodeConfig = field(default_factory=DecodeConfig)
    form: Format | None = None
    """The format, where the bytes shall not decide."""
    wants_times: bool = False
    """Whether times in front of lines of text are read, which takes as long as all the rest of a line:
    reports about hardware are joined to iterations by them."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Metric or role (``iteration``, ``rank``) to the name that the file has for it, where names shall
    not decide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Understood:
    """What a reader made of a file so far, for a person.

    ``format`` names it (``text log (Megatron)``), ``counter`` what is used as iteration (``row number``
    where nothing counts). ``columns`` are pairs of a name in the file and what it is read as. ``lines``
    are those that are not blank, ``used_lines`` those that gave a record, a value or an event; 0 where
    the format has no lines. ``padding`` counts rows whose metrics are all nan and hence not reported.
    ``remarks`` are sentences; ``guess`` is the nearest guess where nothing was recognised; ``doubt`` is why
    the log is not to be called healthy though no record shows a fault.
    """

    format: str = ""
    counter: str = "iteration"
    columns: tuple[tuple[str, str], ...] = ()
    lines: int = 0
    used_lines: int = 0
    padding: int = 0
    remarks: tuple[str, ...] = ()
    guess: str = ""
    doubt: str = ""


class LineDecoder(Protocol):
    """Decodes one text file, fed with its whole lines in order."""

    @property
    def is_wire(self) -> bool:
        """Whether its lines carry run and rank, as our own do."""
        ...

    @property
    def says_attempt(self) -> bool:
        """Whether attempts are numbered, so that a counter that goes back is no restart by itself."""
        ...

    def decode(self, data: bytes) -> RecordBatch:
        """The records of the next whole lines."""
        ...

    def finish(self) -> RecordBatch | None:
        """What was held back for a line to come, now that none will."""
        ...

    def understood(self) -> Understood:
        """What was understood so far."""
        ...

    def anew(self) -> Callable[[bytes], RecordBatch] | None:
        """What decodes lines out of the middle of the file; None where lines depend on those before."""
        ...


DocumentReader = Callable[[Path, Defaults, FileConfig], Iterator[tuple[RecordBatch, Understood]]]
"""Reads a file as a whole: batches in order, each with what was understood up to it.

Raises `UnreadableInput` for a file that is damaged or holds no records."""
