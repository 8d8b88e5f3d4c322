"""JSON lines as a `LineDecoder`: our own, and those of other loggers, an object a line, whatever its keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from firstfault.wire import Defaults
from firstfault.wire_values import describe

from .blocks import RecordBatch, Rejected
from .decode import Decoder, line_pieces
from .joining import concatenate
from .json_columns import LEAST_BYTES, ColumnKinds
from .json_keys import JsonKeys
from .json_reference import BOM, RULE_JSON, parsed, plain_line_ends
from .json_rows import JsonRecord, JsonRows, require_numbers
from .log_reader import FileConfig, Understood
from .sniff import Format
from .value_columns import flat

RULE_OBJECT = "must be a JSON object"
_KEPT_BYTES = 1024
_PIECE_BYTES = 2 << 20
"""Lines tried at once by columns: an odd one among them costs so much of the slower way."""


class JsonLinesDecoder:
    """JSON lines that are, or are like, our own, as a `LineDecoder`."""

    def __init__(self, keys: JsonKeys, defaults: Defaults, source: str, config: FileConfig) -> None:
        self._keys = keys
        self._defaults, self._source, self._config = defaults, source, config
        self._decoder = Decoder(config.decode, defaults)
        self._lines = 0
        self._counter = "iteration" if keys.roles.iteration is None else keys.roles.counter
        self.is_wire = keys.is_wire
        self.says_attempt = False

    def decode(self, data: bytes) -> RecordBatch:
        """The records of the next whole lines."""
        self.says_attempt = self.says_attempt or b'"attempt"' in data
        batch = self._decoder.decode_lines(data, self._source, self._lines)
        self._lines += data.count(b"\n")
        return self._keys.rename(batch)

    def finish(self) -> RecordBatch | None:
        """Nothing: a line is whole."""
        return None

    def understood(self) -> Understood:
        """What was understood so far."""
        return Understood(
            format=Format.JSON_LINES.value,
            counter=self._counter,
            columns=self._keys.roles.columns,
            remarks=self._keys.roles.remarks,
        )

    def anew(self) -> Callable[[bytes], RecordBatch] | None:
        """What decodes lines out of the middle of the file."""
        return JsonLinesDecoder(self._keys, self._defaults, self._source, self._config).decode


class ForeignLinesDecoder:
    """Reads lines of objects with the meaning that their first ones show."""

    def __init__(
        self, sample: Sequence[JsonRecord], defaults: Defaults, source: str, config: FileConfig
    ) -> None:
        self._sample, self._defaults, self._source, self._config = sample, defaults, source, config
        self._rows = JsonRows(sample, defaults, source, config.columns)
        require_numbers(self._rows.roles, [flat(record) for record in sample], source)
        self._kinds = ColumnKinds()
        self._kinds.learn(sample)
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
        if len(data) < LEAST_BYTES:
            return self._by_objects(data)
        plain = plain_line_ends(data if data.endswith(b"\n") else data + b"\n")
        return concatenate([self._by_columns(piece) for piece in line_pieces(plain, _PIECE_BYTES)])

    def _by_columns(self, data: bytes) -> RecordBatch:
        """A piece by Arrow where its lines are alike, else object by object."""
        columns = self._kinds.read(data, list(self._rows.roles.names)) if self._rows.has_begun else None
        if columns is None:
            return self._by_objects(data)
        lines = len(columns[0])
        batch = self._rows.decode_columns(columns, range(self._next_line, self._next_line + lines))
        self._next_line += lines
        self._lines += lines
        self._used += len(batch)
        return batch

    def _by_objects(self, data: bytes) -> RecordBatch:
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
        self._kinds.learn(records)
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
                value = parsed(raw.removeprefix(BOM))
            except ValueError as error:
                rule, text = RULE_JSON, f"{describe(raw[:120])} ({error})"
            else:
                if isinstance(value, dict):
                    return value
                rule, text = RULE_OBJECT, describe(value)
        rejected.append(Rejected("line", rule, text, True, self._source, number, raw[:_KEPT_BYTES]))
        return None
