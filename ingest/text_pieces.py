"""The head of a stream of bytes, and pieces of it that end on the border of a line (of a table: of a row)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

MAX_CARRY_BYTES = 8 << 20
"""A line that is not over after 8 MiB is no record: what came of it is handed on to be rejected, and the
rest of it is skipped, so that a file without line ends does not fill the memory."""


def last_line_end(data: bytes) -> int:
    """Where the last complete line of ``data`` ends (behind its newline); 0 if none does."""
    return data.rfind(b"\n") + 1


def whole_lines(
    chunks: Iterator[bytes], piece_bytes: int, end_of: Callable[[bytes], int] = last_line_end
) -> Iterator[bytes]:
    """Pieces of at least ``piece_bytes`` (but the last) that end on a border as found by ``end_of``.

    >>> list(whole_lines(iter([b"a\\nb", b"c\\nd"]), 1))
    [b'a\\n', b'bc\\n', b'd']
    """
    carry = b""
    waiting: list[bytes] = []
    waiting_bytes = 0
    is_skipping = False
    for chunk in chunks:
        if is_skipping:
            border = chunk.find(b"\n")
            if border < 0:
                continue
            # The newline ends the line whose beginning was handed on.
            chunk, is_skipping = chunk[border + 1 :], False  # noqa: PLW2901  # the rest of the same chunk
        waiting.append(chunk)
        waiting_bytes += len(chunk)
        if waiting_bytes < piece_bytes:
            continue
        # Cut in the last chunk first, which is small: a piece is not to be copied once more.
        border = last_line_end(chunk)
        data = b"".join([carry, *waiting[:-1], chunk[:border]])
        waiting, waiting_bytes = [], 0
        end = end_of(data)
        if end:
            yield data if end == len(data) else data[:end]
        carry = data[end:] + chunk[border:]
        if len(carry) > MAX_CARRY_BYTES:
            yield carry + b"\n"
            carry, is_skipping = b"", True
    rest = carry + b"".join(waiting)
    if rest:
        yield rest


def lines_of(head: bytes) -> Iterator[bytes]:
    """The lines of ``head`` one by one: most questions are answered by the first."""
    head = head.removeprefix(b"\xef\xbb\xbf")
    end = b"\n" if b"\n" in head else b"\r"
    start = 0
    while start <= len(head):
        stop = head.find(end, start)
        stop = len(head) if stop < 0 else stop
        yield head[start:stop].rstrip(b"\r")
        start = stop + 1


def first_chunks(chunks: Iterator[bytes], size: int) -> list[bytes]:
    """Chunks from the front until they hold ``size`` bytes."""
    taken: list[bytes] = []
    while sum(len(chunk) for chunk in taken) < size:
        chunk = next(chunks, None)
        if chunk is None:
            break
        taken.append(chunk)
    return taken
