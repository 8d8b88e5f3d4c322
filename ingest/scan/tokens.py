r"""A line of text becomes its shape and its numbers.

The *shape* is the line with a mark (``\0``) for each number: ``step 12 loss 2.3`` and ``step 13 loss 2.2``
have one shape, ``step \0 loss \0``. A log of a million lines has a few dozen shapes, so what a line means
is worked out once per shape and the rest is numbers in slots.

Blanks before a number become one, other runs of blanks at most two (two separate fields, one does not);
runs of one punctuation mark become one, and what bars and boxes are drawn with becomes ``|``. The words
``nan`` and ``inf`` stay text: a record with a NaN has a shape of its own.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

MARK = "\0"
# Digits inside a name (loss_q0, Acc@1, output #0) belong to the name; after a dot they belong to a version or
# an address. A sign is part of the number only where nothing stands before it that it could join to it.
NUMBER = (
    rb"(?<![A-Za-z0-9_.@#\x80-\xff])(?:(?<![)\]}])[+-])?"
    rb"(?:(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9]|,[0-9])|[0-9]+)(?:\.[0-9]+|\.(?=#|[eE][+-]?[0-9]))?|\.[0-9]+)"
    rb"(?:[eE][+-]?[0-9]+)?"
)
_NUMBER = re.compile(NUMBER)
_MARK = MARK.encode()
_DRAWN = re.compile(rb"(?:\xe2[\x94-\x96][\x80-\xbf])+")
_BLANKS_BEFORE_NUMBER = re.compile(rb"(?<![ \t])[ \t]+(?=\x00)")  # a run is tried once: linear
_BLANKS = re.compile(rb"  +")
_REPEATED = re.compile(rb"([!-/:-@\[-^`{-~])\1+")
MAX_SHAPE_BYTES = 1 << 13
"""Of a longer line only the first 8 KiB are looked at: a record has a tenth of it."""

MAX_SENTENCE_BYTES = 1 << 11
"""Of a line in which sentences and dialects are looked for: some of their forms take the square of it."""


class Tokens(NamedTuple):
    """One line: its shape, and the text of the number in each slot."""

    shape: bytes
    numbers: list[bytes]


def tokenize(line: bytes) -> Tokens:
    r"""The shape and the numbers of one clean line.

    >>> tokenize(b"iteration      12/  300 | lm loss: 6.3E+00")
    Tokens(shape=b'iteration \x00/ \x00 | lm loss: \x00', numbers=[b'12', b'300', b'6.3E+00'])
    """
    line = line[:MAX_SHAPE_BYTES]
    return Tokens(shape_of(_NUMBER.sub(_MARK, line)), _NUMBER.findall(line))


def shape_of(marked: bytes) -> bytes:
    """The shape of a line whose numbers are marked already."""
    if not marked.isascii():
        marked = _DRAWN.sub(b"|", marked)
    marked = _BLANKS_BEFORE_NUMBER.sub(b" ", marked)
    return _REPEATED.sub(rb"\1", _BLANKS.sub(b"  ", marked)).rstrip(b" \t")


@lru_cache(maxsize=1 << 14)
def number_of(text: bytes) -> float:
    """The value of a number as `tokenize` finds it.

    >>> number_of(b"1,048,576"), number_of(b"-.5e-3")
    (1048576.0, -0.0005)
    """
    return float(text.replace(b",", b""))
