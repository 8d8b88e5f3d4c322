"""Whether a file that is too large to look at whole is out of order."""

from __future__ import annotations

from collections.abc import Iterator

from .blocks import RecordBatch
from .file_reader import FileReader
from .lateness import LatenessWatch

_WINDOWS = 64
_WINDOW_BYTES = 32 * 1024


def has_disorder(reader: FileReader, lateness_iterations: int) -> bool:
    """Whether rows of the file go back by more than the lateness bound; a restart counts as such.

    Plain text is sampled at places of equal distance, the end of the file among them: the rows of
    one rank that stand together and are fewer than lie between two samples can be missed; they then
    come late, and are counted as such. Packed files, Arrow and Parquet are read once to find out, if
    their records name ranks: one rank whose counter rises all through the head is taken to be in order.
    """
    watch = LatenessWatch(lateness_iterations)
    if reader.decode_anew is None and not reader.names_ranks:
        return False
    if reader.decode_anew is None:
        return any(watch.is_late(batch) for batch in reader.again().batches())
    return any(watch.is_late(batch) for batch in _samples(reader))


def _samples(reader: FileReader) -> Iterator[RecordBatch]:
    """The records around `_WINDOWS` places of a plain text file, in the order of the file."""
    assert reader.decode_anew is not None
    decode = reader.decode_anew()
    distance = max((reader.size_bytes - _WINDOW_BYTES) // (_WINDOWS - 1), _WINDOW_BYTES)
    with reader.path.open("rb") as file:
        for window in range(_WINDOWS):
            file.seek(min(window * distance, max(reader.size_bytes - _WINDOW_BYTES, 0)))
            data = file.read(_WINDOW_BYTES)
            yield decode(data[data.find(b"\n") + 1 : data.rfind(b"\n") + 1])
