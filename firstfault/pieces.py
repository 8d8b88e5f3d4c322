"""Many lines as few messages, each of a size that the other side takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def pieces(lines: Iterable[bytes], *, most_lines: int, most_bytes: int) -> Iterator[list[bytes]]:
    """``lines`` in order; a line of more bytes than a piece may have is a piece of its own.

    >>> list(pieces([b"a", b"bb", b"cccccc", b"d"], most_lines=2, most_bytes=4))
    [[b'a', b'bb'], [b'cccccc'], [b'd']]
    """
    piece: list[bytes] = []
    size = 0
    for line in lines:
        if piece and (len(piece) >= most_lines or size + len(line) > most_bytes):
            yield piece
            piece, size = [], 0
        piece.append(line)
        size += len(line) + 1
    if piece:
        yield piece
