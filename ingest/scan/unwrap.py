"""Records that a terminal or an editor wrapped over several lines become one line again.

Only a dialect whose records end in a mark can say that a line is not over: Megatron's end in a bar.
"""

from __future__ import annotations

from collections.abc import Sequence

from .noise import is_noise
from .prefixes import read_prefix

MAX_LINES = 6
"""Lines of one wrapped record: three in an editor of 150 columns, six in a terminal of 80."""
END = b"|"


def is_open(record: bytes) -> bool:
    """Whether the line of a record goes on in the next one."""
    return not record.rstrip().endswith(END)


def unwrap(lines: Sequence[bytes], open_at: Sequence[int], *, is_last: bool) -> tuple[bytes, bytes]:
    """The text of the lines, each record that begins at one of ``open_at`` in one line; and what must wait.

    A record whose end may come in the next piece of the log waits for it, unless this ``is_last``.

    >>> unwrap([b"iteration 1/ 2 | learning", b" rate: 0.5 |", b"x"], [0], is_last=True)
    (b'iteration 1/ 2 | learning rate: 0.5 |\\nx\\n', b'')
    """
    out: list[bytes] = []
    at = 0
    for start in open_at:
        if start < at:
            continue
        out += lines[at:start]
        end = _end_of(lines, start)
        if end is None and not is_last and _may_go_on(lines, start):
            return _text(out), _text(lines[start:])
        stop = start + 1 if end is None else end
        out.append(_joined(lines[start:stop]))
        at = stop
    return _text([*out, *lines[at:]]), b""


def _end_of(lines: Sequence[bytes], start: int) -> int | None:
    """Behind the last line of the record; None where none of the next lines ends it."""
    for at in range(start + 1, min(start + MAX_LINES, len(lines))):
        if not _continues(lines[at]):
            return None
        if not is_open(lines[at]):
            return at + 1
    return None


def _may_go_on(lines: Sequence[bytes], start: int) -> bool:
    rest = lines[start + 1 : start + MAX_LINES]
    return len(rest) < MAX_LINES - 1 and all(_continues(line) for line in rest)


def _continues(line: bytes) -> bool:
    return (
        bool(line.strip()) and read_prefix(line).end == 0 and not is_noise(line) and b"iteration " not in line
    )


def _joined(lines: Sequence[bytes]) -> bytes:
    record = lines[0]
    for line in lines[1:]:
        # An editor breaks at a blank and drops it, or leaves it at the front of the next line.
        record += line if line.startswith(b" ") or record.endswith(b" ") else b" " + line
    return record


def _text(lines: Sequence[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)
