"""The formats of lines that have a structure of their own: tables, and JSON lines."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from firstfault.wire import Defaults

from .blocks import RecordBatch
from .decode import Decoder
from .errors import UnreadableInput
from .json_keys import JsonKeys, JsonLinesAdapter, read_keys
from .log_reader import FileConfig, LineDecoder, Understood
from .roles import ROW_NUMBER
from .sniff import Format, find_dialect
from .tables import TableConfig, TableReader


class TableDecoder:
    """A text table as a `LineDecoder`."""

    def __init__(self, head: bytes, defaults: Defaults, source: str, config: FileConfig) -> None:
        dialect = find_dialect(head, source)
        self._table = TableReader(dialect, head, defaults, source, wanted=config.columns)
        large = TableConfig(small_piece_bytes=0)  # only large files are sampled
        self._sampler = partial(TableReader, dialect, head, defaults, source, large, wanted=config.columns)
        self.says_attempt = False

    @property
    def is_wire(self) -> bool:
        """Whether its rows carry run and rank, as our own do."""
        return {"run", "rank"} <= self._table.header.identity.keys()

    def decode(self, data: bytes) -> RecordBatch:
        """The records of the next whole rows."""
        batch = self._table.decode(data)
        self.says_attempt = self.says_attempt or "attempt" in self._table.header.identity
        return batch

    def finish(self) -> RecordBatch | None:
        """Nothing: a row is whole."""
        return None

    def understood(self) -> Understood:
        """What was understood so far."""
        header = self._table.header
        return Understood(
            format=Format.TABLE.value,
            counter=header.counter,
            columns=header.columns,
            padding=self._table.padding,
            remarks=header.remarks,
        )

    def anew(self) -> Callable[[bytes], RecordBatch] | None:
        """What decodes rows out of the middle of the file; None if rows are counted."""
        return None if self._table.header.iteration is None else self._sampler().decode


class JsonLinesDecoder:
    """JSON lines, ours and those of other loggers, as a `LineDecoder`."""

    def __init__(self, keys: JsonKeys, defaults: Defaults, source: str, config: FileConfig) -> None:
        self._keys = keys
        self._defaults, self._source, self._config = defaults, source, config
        self._adapter = JsonLinesAdapter(keys)
        self._decoder = Decoder(config.decode, defaults)
        self._lines = 0
        self.is_wire = keys.is_wire
        self.says_attempt = False

    def decode(self, data: bytes) -> RecordBatch:
        """The records of the next whole lines."""
        self.says_attempt = self.says_attempt or b'"attempt"' in data
        batch = self._decoder.decode_lines(self._adapter.adapt(data), self._source, self._lines)
        self._lines += data.count(b"\n")
        return self._adapter.rename(batch)

    def finish(self) -> RecordBatch | None:
        """Nothing: a line is whole."""
        return None

    def understood(self) -> Understood:
        """What was understood so far."""
        return Understood(
            format=Format.JSON_LINES.value,
            counter=self._keys.counter,
            columns=tuple((self._keys.renamed or {}).items()),
            remarks=self._keys.remarks,
        )

    def anew(self) -> Callable[[bytes], RecordBatch] | None:
        """What decodes lines out of the middle of the file; None if lines are counted."""
        if self._keys.counter == ROW_NUMBER:
            return None
        return JsonLinesDecoder(self._keys, self._defaults, self._source, self._config).decode


def line_decoder(
    form: Format, head: bytes, defaults: Defaults, source: str, config: FileConfig
) -> LineDecoder:
    """What decodes the lines of a text file that begins with ``head``.

    Raises:
        UnreadableInput: ``form`` has no lines, or the head is not of that form.
    """
    if form is Format.TABLE:
        return TableDecoder(head, defaults, source, config)
    if form is Format.JSON_LINES:
        return JsonLinesDecoder(read_keys(head, config.columns), defaults, source, config)
    if form is Format.TEXT:
        from .scan.scanner import TextScanner  # only text logs pay for it

        return TextScanner(defaults, source, config.columns)
    raise UnreadableInput(f"{source}: must be text, but it is {form.value}")
