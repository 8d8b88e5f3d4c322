"""JSON lines of other loggers as a `LineDecoder`: an object a line, whatever its keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pydantic_core import from_json

from firstfault.wire import Defaults
from firstfault.wire_values import describe

from .blocks import RecordBatch, Rejected
from .json_reference import BOM, RULE_JSON
from .json_rows import JsonRecord, JsonRows, require_numbers
from .log_reader import FileConfig, Understood
from .sniff import Format
from .value_columns import flat

RULE_OBJECT = "must be a JSON object"
_KEPT_BYTES = 1024


class ForeignLinesDecoder:
    """Reads lines of objects with the meaning that their first ones show."""

    def __init__(
        self, sample: Sequence[JsonRecord], defaults: Defaults, source: str, config: FileConfig
    ) -> None:
        self._sample, self._defaults, self._source, self._config = sample, defaults, source, config
        self._rows = JsonRows(sample, defaults, source, config.columns)
        require_numbers(self._rows.roles, [flat(record) for record in sample], source)
        self._next_line = self._lines = self._used = 0

    @property
    def is_wire(self) -> bool:
        """Never: our own lines are read by another decoder."""
        return False

    @property
    def says_attempt(self) -> bool:
        """Whether records say their attempt."""
        return "attempt" in self._rows.roles.identity

    def decode(self, data: bytes) -> RecordBatch:
        """The records of the next whole lines."""
        records: list[JsonRecord] = []
        places: list[int] = []
        rejected: list[Rejected] = []
        for number, raw in enumerate(data.split(b"\n"), self._next_line):
            if not raw or raw.isspace():
                continue
            self._lines += 1
            value = self._object(raw, number, rejected)
            if value is not None:
                records.append(value)
                places.append(number)
        self._next_line += data.count(b"\n")
        batch = self._rows.decode(records, places)
        self._used += len(batch)
        return replace(batch, rejected=(*batch.rejected, *rejected)) if rejected else batch

    def finish(self) -> RecordBatch | None:
        """Nothing: a line is whole."""
        return None

    def understood(self) -> Understood:
        """What was understood so far."""
        roles = self._rows.roles
        return Understood(
            format=Format.JSON_LINES.value,
            counter=roles.counter,
            columns=roles.columns,
            lines=self._lines,
            used_lines=self._used,
            padding=self._rows.padding,
            remarks=roles.remarks,
        )

    def anew(self) -> Callable[[bytes], RecordBatch] | None:
        """What decodes lines out of the middle of the file; None if lines are counted."""
        if self._rows.roles.iteration is None:
            return None
        return ForeignLinesDecoder(self._sample, self._defaults, self._source, self._config).decode

    def _object(self, raw: bytes, number: int, rejected: list[Rejected]) -> JsonRecord | None:
        limit = self._config.decode.max_line_bytes
        if len(raw) > limit:
            rule, text = f"must be at most {limit} bytes", f"{len(raw)} bytes: {describe(raw[:40])}"
        else:
            try:
                value: object = from_json(raw.removeprefix(BOM))
            except ValueError as error:
                rule, text = RULE_JSON, f"{describe(raw[:120])} ({error})"
            else:
                if isinstance(value, dict):
                    return value
                rule, text = RULE_OBJECT, describe(value)
        rejected.append(Rejected("line", rule, text, True, self._source, number, raw[:_KEPT_BYTES]))
        return None
