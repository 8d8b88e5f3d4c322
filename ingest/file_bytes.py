"""The bytes of one log that lies in one file or in several that go on where the one before ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from .compression import TruncatedInput, open_bounded
from .encodings import to_utf8, wide_encoding, without_leading_zeros
from .errors import UnreadableInput
from .sniff import HEAD_BYTES, Packing, packing_of
from .text_pieces import first_chunks

MAX_COPY_BYTES = 4 << 30
"""Bytes of a packed file that is read as a whole: 4 GiB on the disk, far above a tracker's file."""


class FileBytes:
    """Reads the files ``paths`` one after the other, unpacked; wide text (UTF-16, UTF-32) as UTF-8.

    ``remark`` is told what went wrong with a file that could be read in part.
    """

    def __init__(self, paths: Sequence[Path], name: str, remark: Callable[[str], None]) -> None:
        self._paths = paths
        self._name = name
        self._remark = remark
        self._stream: BinaryIO | None = None
        self._done_bytes = 0
        self.is_plain = False
        """Whether the bytes are those of one file as they lie on the disk."""

    @property
    def size_bytes(self) -> int:
        """Size of the files as they lie; 0 for what cannot be told."""
        return sum(_size(path) for path in self._paths)

    @property
    def read_bytes(self) -> int:
        """Bytes of the files, as they lie, that were read so far."""
        is_open = self._stream is not None and not self._stream.closed
        return self._done_bytes + (self._stream.tell() if self._stream is not None and is_open else 0)

    def skip(self) -> None:
        """Count the first file as read: its reader opened it by itself."""
        if self._stream is not None and not self._stream.closed:
            self._stream.seek(0, 2)

    def chunks(self) -> Iterator[bytes]:
        """All bytes, in pieces.

        Raises:
            UnreadableInput: the first file cannot be opened or is damaged.
        """
        is_at_line_start = True
        for at, path in enumerate(self._paths):
            if not is_at_line_start:
                yield b"\n"  # a process that was killed leaves half a line, which the next must not lengthen
            for chunk in self._of_file(path, is_first=at == 0):
                is_at_line_start = chunk.endswith(b"\n")
                yield chunk

    def _of_file(self, path: Path, *, is_first: bool) -> Iterator[bytes]:
        try:
            with path.open("rb") as stream:
                self._stream = stream
                packing = packing_of(stream.read(8))
                stream.seek(0)
                chunks = without_leading_zeros(self._unpacked(stream, path, is_first=is_first))
                head = first_chunks(chunks, HEAD_BYTES)
                codec = wide_encoding(b"".join(head)[:HEAD_BYTES])
                if is_first:
                    self.is_plain = packing is Packing.PLAIN and codec is None and len(self._paths) == 1
                everything = _chained(head, chunks)
                yield from everything if codec is None else to_utf8(everything, codec)
                self._done_bytes += stream.tell()
        except OSError as error:
            raise UnreadableInput(f"{self._name if is_first else path}: {error.strerror}") from error

    def _unpacked(self, stream: BinaryIO, path: Path, *, is_first: bool) -> Iterator[bytes]:
        try:
            yield from open_bounded(stream)
        except TruncatedInput as error:
            self._remark(f"{error}; what came before is judged")
        except UnreadableInput as error:
            text = str(error)
            name = self._name if is_first else str(path)
            raise UnreadableInput(text if name in text else f"{name}: {text}") from error


@contextmanager
def unpacked_copy(chunks: Iterator[bytes], name: str) -> Iterator[Path]:
    """The bytes in a file of their own, deleted at the end: for readers that open a file by themselves."""
    with TemporaryDirectory(prefix="firstfault-unpacked-") as folder:
        path = Path(folder) / name
        written = 0
        with path.open("wb") as file:
            for chunk in chunks:
                written += len(chunk)
                if written > MAX_COPY_BYTES:
                    raise UnreadableInput(f"{path}: must unpack to at most {MAX_COPY_BYTES} bytes, got more")
                file.write(chunk)
        yield path


def _chained(head: list[bytes], rest: Iterator[bytes]) -> Iterator[bytes]:
    while head:
        yield head.pop(0)
    yield from rest


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
