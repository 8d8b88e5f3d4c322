"""Texts in other encodings than UTF-8 become UTF-8, piece by piece.

UTF-16 and UTF-32 are told by their mark, or by where their zeros stand: the redirection of some shells
writes them. In a text of 8 bits a byte that is no UTF-8 is taken as Windows-1252, which holds Latin-1.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator

UTF8_MARK = b"\xef\xbb\xbf"
_MARKS = (
    (b"\xff\xfe\0\0", "utf-32-le"),
    (b"\0\0\xfe\xff", "utf-32-be"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)
_LOOK_BYTES = 4096
_MIN_BYTES = 16
"""Shorter files are too little to tell an encoding by."""
_MAX_ODD_ZEROS = 0.02
"""Share of zeros on the side of the characters: none in a text, but for damage."""
_HOLE = bytes(8)
_ZERO_RUN = re.compile(rb"\0{8,}")
"""Space that was set aside and never written; single zeros are the business of whoever reads the lines."""


def wide_encoding(head: bytes) -> str | None:
    """The codec of a text of 16 or 32 bits a character that begins with ``head``; None for any other file.

    >>> wide_encoding("step 1 loss 2.5".encode("utf-16-le") * 2), wide_encoding(b"step 1 loss 2.5 step 2")
    ('utf-16-le', None)
    """
    for mark, codec in _MARKS:
        if head.startswith(mark):
            return codec
    look = head[: _LOOK_BYTES & ~1]
    half = len(look) // 2
    if len(look) < _MIN_BYTES:
        return None
    even, odd = look[0::2].count(0), look[1::2].count(0)
    for codec, high, low in (("utf-16-le", odd, look[0::2]), ("utf-16-be", even, look[1::2])):
        # Letters, digits and blanks of a log are ASCII, nearly all: the other halves are zero.
        if high > half * 0.8 and low.count(0) <= half * _MAX_ODD_ZEROS and low[:half].isascii():
            return codec
    return None


def to_utf8(chunks: Iterator[bytes], codec: str) -> Iterator[bytes]:
    """The chunks as UTF-8 without a mark; half a character at the end is dropped."""
    decoder = codecs.getincrementaldecoder(codec)("replace")
    is_first = True
    for chunk in chunks:
        text = decoder.decode(chunk)
        yield (text.removeprefix("\ufeff") if is_first else text).encode("utf-8", "replace")
        is_first = is_first and not text


def without_leading_zeros(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The chunks without a hole at the front: a log that was cut while its writer kept its place has one."""
    is_hole = True
    for chunk in chunks:
        if is_hole and chunk.startswith(_HOLE):
            rest = chunk.lstrip(b"\0")
            is_hole = not rest
            if rest:
                yield rest
        else:
            is_hole = False
            yield chunk


def without_zero_runs(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The chunks without long runs of zero bytes."""
    for chunk in chunks:
        yield _ZERO_RUN.sub(b"", chunk) if b"\0" in chunk else chunk


def as_8_bit(data: bytes) -> bytes:
    r"""Whole lines of a text of 8 bits a character as UTF-8: what is UTF-8 stays.

    >>> as_8_bit(b"dur\xe9e, loss\nPerte d\xc3\xa9j\xc3\xa0\n").decode()
    'durée, loss\nPerte déjà\n'
    """
    if data.isascii():
        return data
    try:
        data.decode()
    except UnicodeDecodeError:
        return data.decode("utf-8", _ERRORS).encode()
    return data


def _windows_1252(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    bad = error.object[error.start : error.end]
    # Five bytes have no meaning there; Latin-1 gives them one.
    return "".join(bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in bad), error.end


_ERRORS = "firstfault-windows-1252"
codecs.register_error(_ERRORS, _windows_1252)
