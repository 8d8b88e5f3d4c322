"""The bytes of a text log become clean lines: one a redraw, without colours and control bytes.

A terminal shows only the last state of a progress bar; a log holds all of them, and each tells a loss.
So whatever goes back on a line (a carriage return, backspaces, the cursor moved) begins a new one. A line
may be cut anywhere into pieces on the way in: the result is the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ingest.bounds import check_bounds

from .escapes import without_escapes

_FIRST_PRINTABLE = 0x20
_DELETE = 0x7F
_AS_LINE_END = bytes.maketrans(b"\x0b\x0c", b"\n\n")
_RETURN_AS_LINE_END = bytes.maketrans(b"\r\x0b\x0c", b"\n\n\n")
_DROPPED = bytes([*(byte for byte in range(_FIRST_PRINTABLE) if byte not in (9, 10, 11, 12)), _DELETE])

_DROPPED_BUT_RETURNS = _DROPPED.replace(b"\r", b"")

_SPELLED_ESCAPE = re.compile(rb"(?:\^\[|\\(?:u001b|x1b|033|e))\[[0-9;]*[A-Za-z]")
_BARE_COLOUR = re.compile(rb"\[(?:[0-9]{1,3}(?:;[0-9]{1,3}){0,5})?m")
_COLOUR_ENDS = (b"[0m", b"[39m")
_COLOURED_LINE = re.compile(rb"^.*\[(?:0|39)m.*$", re.MULTILINE)
_RAW_LINE = re.compile(rb"([^\r\n]*)(\r\n|\r|\n)")
_LINE_WITH_BACKSPACES = re.compile(rb"^[^\n\x08]*\x08[^\n]*", re.MULTILINE)
_BACKSPACES = re.compile(rb"\x08+")
_OF_BARS = (b"%|", b"t/", b"/i")
_WIDE = {
    wide.encode(): plain
    for wide, plain in zip(
        "（），：；＝％｜", (b"(", b")", b", ", b": ", b"; ", b"=", b"%", b"|"), strict=True
    )
}
"""Signs of East Asian texts that separate names and values as their ASCII forms do."""
_WIDE_BYTES = re.compile(b"|".join(_WIDE))
_WIDE_LEAD = b"\xef"
"""The first byte of all of them in UTF-8."""
_FORTRAN = re.compile(rb"(?<=[0-9.])D(?=[+-][0-9]{2,3}(?![0-9A-Za-z]))")
"""The exponent of a double in Fortran: ``1.5D+03``."""
_GLUED_BATCH = re.compile(rb"(Batch [0-9]{1,9})_(?=[0-9])")
"""Epoch and batch of WeNet 3, which would be one name with numbers in it."""
_BAR_END = re.compile(rb"/(?<=[A-Za-z]/)[A-Za-z]{1,8}(?:, [^\]\n]{0,500})?\] *(?=[^ \]\n])")
"""A progress bar on whose line something goes on: a message or the next bar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanConfig:
    """What a line may ask of us."""

    max_line_bytes: int = 1 << 16
    """64 KiB: fifty times a record with two hundred losses. A longer line is cut in pieces at a blank."""
    redraw_backspaces: int = 4
    """Backspaces in a row that redraw a line: Keras sends as many as its bar is wide, while a spinner and a
    percentage take back up to four characters less."""

    def __post_init__(self) -> None:
        check_bounds(self, {"max_line_bytes": (64, 1 << 24), "redraw_backspaces": (2, 1 << 16)})


class Cleaner:
    r"""Turns pieces of a text log into clean whole lines.

    >>> cleaner = Cleaner()
    >>> cleaner.clean(b"\x1b[32mstep 1\x1b[0m loss 2\rstep 2 lo") + cleaner.clean(b"ss 3") + cleaner.finish()
    b'step 1 loss 2\nstep 2 loss 3\n'
    """

    def __init__(self, config: CleanConfig | None = None) -> None:
        self._config = config or CleanConfig()
        self._held = bytearray()
        self._ends_in_return = False
        self._is_rest = False
        self.cut_lines = 0
        """Lines that were longer than the limit and hence cut in pieces."""

    def clean(self, piece: bytes) -> bytes:
        """The clean lines that ``piece`` completes, each ended by a newline."""
        if self._ends_in_return:
            piece = b"\r" + piece
        # A return at the end waits for what follows: with a newline it is one line end.
        self._ends_in_return = piece.endswith(b"\r")
        if self._ends_in_return:
            piece = piece[:-1]
        end = max(piece.rfind(b"\n"), piece.rfind(b"\r")) + 1
        done = piece[:end]
        if end and self._held:
            done = bytes(self._held) + done
            self._held.clear()
        self._held += piece[end:]
        return (self._clean_lines(done) if done else b"") + self._too_long_so_far()

    def finish(self) -> bytes:
        """The last line, which nothing ended."""
        rest, self._ends_in_return = bytes(self._held), False
        self._held.clear()
        return self._clean_lines(rest + b"\n") if rest else b""

    def _too_long_so_far(self) -> bytes:
        """Pieces of the unfinished line, which is over the limit already."""
        if len(self._held) <= self._config.max_line_bytes:
            return b""
        *pieces, rest = self._pieces(bytes(self._held))
        self._held = bytearray(rest)
        return _clean(b"".join(each + b"\n" for each in pieces), self._config)

    def _clean_lines(self, data: bytes) -> bytes:
        """Raw lines, each ended; the first may be the rest of one that was cut before."""
        if not _are_within(data, self._config.max_line_bytes):
            data = b"".join(self._cut(data))
        self._is_rest = False
        return _clean(data, self._config)

    def _cut(self, data: bytes) -> Iterator[bytes]:
        for line in _RAW_LINE.finditer(data):
            yield b"\n".join(self._pieces(line[1])) + line[2]
            self._is_rest = False

    def _pieces(self, line: bytes) -> list[bytes]:
        """A line cut where it must be, which depends on nothing but its own bytes."""
        limit, start, pieces = self._config.max_line_bytes, 0, []
        while len(line) - start > limit:
            stop = line.rfind(b" ", start + limit // 2, start + limit) + 1 or start + limit
            pieces.append(line[start:stop])
            self.cut_lines += not self._is_rest
            self._is_rest = True
            start = stop
        return [*pieces, line[start:]]


def _are_within(data: bytes, limit: int) -> bool:
    """Whether no line of ``data``, all of whose lines are ended, is longer than ``limit``."""
    start = 0
    while len(data) - start > limit:
        window = (start, start + limit + 1)
        end = data.rfind(b"\n", *window) + 1 or data.rfind(b"\r", *window) + 1
        if not end:
            return False
        start = end
    return True


def _clean(data: bytes, config: CleanConfig) -> bytes:
    """Ended lines without what no reader of a log wants to see; most logs have none of it."""
    if _has_controls(data):
        data = _without_controls(data, config)
    # One byte, or two by numpy, are searched in a tenth of the time that three take.
    if b"^" in data or b"\\" in data:
        data = _SPELLED_ESCAPE.sub(b"", data)
    if any(_holds_pair(data, mark) and mark in data for mark in _COLOUR_ENDS):
        data = _COLOURED_LINE.sub(lambda line: _BARE_COLOUR.sub(b"", line[0]), data)
    if _WIDE_LEAD in data:
        data = _WIDE_BYTES.sub(lambda sign: _WIDE[sign[0]], data)
    if b"Batch " in data:
        data = _GLUED_BATCH.sub(rb"\1/", data)
    if _holds_fortran(data):
        data = _FORTRAN.sub(b"E", data)
    if _goes_on_behind_bracket(data) and any(_holds_pair(data, mark) for mark in _OF_BARS):
        data = _BAR_END.sub(rb"\g<0>" + b"\n", data)
    return data


def _holds_pair(data: bytes, mark: bytes) -> bool:
    """Whether the first two bytes of ``mark`` stand in ``data``."""
    bytes_N = np.frombuffer(data, np.uint8)
    pair = np.frombuffer(mark[:2], np.uint16)
    return any(
        bool((bytes_N[first : first + (len(data) - first) // 2 * 2].view(np.uint16) == pair).any())
        for first in (0, 1)
    )


def _goes_on_behind_bracket(data: bytes) -> bool:
    """Whether a line goes on behind a closing bracket: most bars end with theirs."""
    bytes_N = np.frombuffer(data, np.uint8)
    behind_N = bytes_N[1:][bytes_N[:-1] == ord("]")]
    return bool(((behind_N != ord("\n")) & (behind_N != ord("]"))).any())


def _holds_fortran(data: bytes) -> bool:
    """Whether a digit, a d and a sign stand in a row: ``forward-compute`` has no digit."""
    bytes_N = np.frombuffer(data, np.uint8)
    sign_N = np.flatnonzero((bytes_N[2:] == ord("+")) | (bytes_N[2:] == ord("-")))
    sign_N = sign_N[(bytes_N[1:-1][sign_N] | 0x20) == ord("d")]
    before_N = bytes_N[sign_N]
    return bool(((before_N == ord(".")) | ((before_N >= ord("0")) & (before_N <= ord("9")))).any())


def _has_controls(data: bytes) -> bool:
    bytes_N = np.frombuffer(data, np.uint8)
    kept = sum(int(np.count_nonzero(bytes_N == byte)) for byte in b"\t\n")
    return np.count_nonzero(bytes_N < _FIRST_PRINTABLE) != kept or b"\x7f" in data


def _without_controls(data: bytes, config: CleanConfig) -> bytes:
    if b"\r\n" in data:
        data = data.replace(b"\r\n", b"\n")
    if b"\x1b" not in data and b"\x08" not in data:
        return data.translate(_RETURN_AS_LINE_END, _DROPPED_BUT_RETURNS)
    data = data.replace(b"\r", b"\n")
    if b"\x1b" in data:
        data = without_escapes(data)
    if b"\x08" in data:
        data = _redrawn(data, config.redraw_backspaces)
    if b"\x08" in data:
        data = _LINE_WITH_BACKSPACES.sub(lambda line: _take_back(line[0]), data)
    return data.translate(_AS_LINE_END, _DROPPED)


def _redrawn(data: bytes, least: int) -> bytes:
    """A newline for each run of at least so many backspaces: they begin the line anew."""
    is_back_N = np.frombuffer(data, np.uint8) == ord("\b")
    edge_N = np.flatnonzero(is_back_N[1:] != is_back_N[:-1]) + 1
    edge_N = np.concatenate([[0] * bool(is_back_N[0]), edge_N, [len(data)] * bool(is_back_N[-1])])
    run_K2 = edge_N.astype(np.int64).reshape(-1, 2)
    run_K2 = run_K2[run_K2[:, 1] - run_K2[:, 0] >= least]
    begins, ends = [0, *run_K2[:, 1].tolist()], [*run_K2[:, 0].tolist(), len(data)]
    return b"\n".join([data[begin:end] for begin, end in zip(begins, ends, strict=True)])


def _take_back(line: bytes) -> bytes:
    """A line with its backspaces carried out: each takes a character back."""
    out, start = bytearray(), 0
    for run in _BACKSPACES.finditer(line):
        out += line[start : run.start()]
        start = run.end()
        for _ in range(start - run.start()):
            while out and out[-1] & 0xC0 == 0x80:  # the inner bytes of one character
                out.pop()
            if out:
                out.pop()
    return bytes(out + line[start:])
