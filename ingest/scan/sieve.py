"""Which lines are looked at: all of a log with few shapes, and of free text those that may tell something.

A log has dozens of shapes; in free text nearly every line makes a new one, and to work out what a shape means
takes half a millisecond. So from a number of shapes on a line of a new one must hold a word that records,
sentences or dialects are made of. What was seen before is read as ever, however much text stands between.

The words are found in the bytes of a line by a table of states (`kernel_words`) and in a shape by a regular
expression; ``tests/test_scan_sieve.py`` holds the two equal.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from .tokens import MAX_SHAPE_BYTES

FREE_SHAPES = 1 << 10
"""Shapes looked at whatever they are: half a second of work; logs have dozens."""
PASSED, NAMES, TELLS, IGNORED = range(4)
"""What a line is for its words; the greatest counts. A name of a value must have a number beside it."""

# A blank in a word stands for all but letters, digits and bytes of other alphabets, or an end of the line.
_NAMES = (
    *(
        "loss",
        "norm",
        "step",
        "iter",
        "epoch",
        "batch",
        "update",
        "grad",
        " rank",
        " it ",
        " avg ",
        "sent s ",
    ),
    *(" lr ", "learning rate", "accuracy", " acc ", "perplexity", " ppl ", "nll", "rmse", "scale"),
)
_WORDS = (
    *(
        "overflow",
        "snapshotting",
        "skipp",
        "checkpoint",
        "ckpt",
        "resum",
        "restart",
        "rerun",
        "qnan",
        " nan ",
        " nans ",
        " inf ",
    ),
    *("infinit", "finite", "xid ", " ecc", "edac", "nccl", "watchdog", "hardware", "machine check", "cuda"),
    *(
        "out of memory",
        "nvlink",
        "pcie",
        " aer ",
        " hbm",
        "amdgpu",
        "gpu hang",
        "thermal",
        "thrott",
        "checksum",
    ),
    *("feature", "silent", " sdc ", "health", "mllog", "tensor ", "after training", "exiting program"),
    *(
        "diverg",
        "cancelled",
        "join collective",
        "time limit",
        "fallen off",
        "temperature",
        "educing learning",
    ),
)
_IGNORED_WORDS = ("nccl info ", "nccl trace ")
"""Of lines that are no telemetry whatever else stands in them: large jobs begin with a million of them."""

_GAP, _OTHER, _NUMERAL = 0, 27, 28
_CLASSES = 29


def class_of_bytes() -> NDArray[np.uint8]:
    """What each byte is: a gap, a letter from 1 on, a digit, or part of another alphabet."""
    class_B = np.zeros(256, np.uint8)
    for byte in range(26):
        class_B[[65 + byte, 97 + byte]] = byte + 1
    class_B[list(b"0123456789")] = _NUMERAL
    class_B[[*range(0xC3, 0xE2), *range(0xE3, 0xF5)]] = _OTHER
    return class_B


def _with(words: tuple[str, ...], meaning: int) -> list[tuple[str, int]]:
    return [(word, meaning) for word in words]


@cache
def states() -> tuple[NDArray[np.int16], NDArray[np.uint8]]:
    """For each state and class the next state; and for each state what a line is that reached it."""
    tree: list[dict[int, int]] = [{}]
    means = [PASSED]
    for word, meaning in [*_with(_NAMES, NAMES), *_with(_WORDS, TELLS), *_with(_IGNORED_WORDS, IGNORED)]:
        state = 0
        for byte in class_of_bytes()[list(word.encode())].tolist():
            if byte not in tree[state]:
                tree[state][byte] = len(tree)
                tree.append({})
                means.append(PASSED)
            state = tree[state][byte]
        means[state] = max(means[state], meaning)
    next_SC = np.zeros((len(tree), _CLASSES), np.int16)
    fall = [0] * len(tree)
    waiting = deque([0])
    while waiting:
        state = waiting.popleft()
        means[state] = max(means[state], means[fall[state]])
        next_SC[state] = next_SC[fall[state]] if state else 0
        for byte, child in tree[state].items():
            fall[child] = int(next_SC[fall[state], byte]) if state else 0
            next_SC[state, byte] = child
            waiting.append(child)
    return next_SC, np.array(means, np.uint8)


_NO_GAP = rb"a-z0-9\0\xc3-\xe1\xe3-\xf4"


def _expression(words: tuple[str, ...]) -> bytes:
    forms = []
    for word in words:
        inner = rb"[^" + _NO_GAP + rb"]+"
        form = inner.join(part.encode() for part in word.strip().split(" "))
        form = (rb"(?<![" + _NO_GAP + rb"])" if word.startswith(" ") else b"") + form
        forms.append(form + (rb"(?![" + _NO_GAP + rb"])" if word.endswith(" ") else b""))
    return b"|".join(forms)


_TELLS = re.compile(_expression(_WORDS))
_FOREIGN = re.compile(rb"[\xc3-\xe1\xe3-\xf4]")
_NAMED = re.compile(_expression(_NAMES))
_VALUE_BESIDE = re.compile(
    rb"(?:"
    + _expression(_NAMES)
    + rb"|[\xc3-\xe1\xe3-\xf4])[^\0]{0,24}\0|\0[^\0a-z]{0,3}(?:"
    + _expression(_NAMES)
    + rb")"
)
_IGNORED = re.compile(_expression(_IGNORED_WORDS))
_LETTER = re.compile(rb"[a-df-z]|(?<![0-9.\0])e")


def meaning_of_shape(shape: bytes) -> int:
    """What lines of a shape are for their words; rows of numbers, without any, may be of a table.

    >>> [meaning_of_shape(shape) for shape in (b"size \\0", b"Epoch \\0", b"CUDA", b"[\\0] NCCL INFO Ring")]
    [0, 1, 2, 3]
    """
    shape = shape.lower()
    if _IGNORED.search(shape):
        return IGNORED
    if _TELLS.search(shape) or not _LETTER.search(shape):
        return TELLS
    return NAMES if _NAMED.search(shape) or _FOREIGN.search(shape) else PASSED


def names_value(shape: bytes) -> bool:
    """Whether a number stands beside a name.

    >>> names_value(b"step \\0 of it"), names_value(b"the next step is to look at all of this \\0")
    (True, False)
    """
    return _VALUE_BESIDE.search(shape.lower()) is not None


class Sieve:
    """Decides shape by shape, in the order in which they appear: the same however the log is cut."""

    def __init__(self, free_shapes: int = FREE_SHAPES) -> None:
        self._free_shapes = free_shapes
        self._free: dict[bytes, bytes] = {}
        self._hashes: NDArray[np.uint64] | None = None

    @property
    def is_open(self) -> bool:
        """Whether any shape is still looked at."""
        return len(self._free) < self._free_shapes

    def hashes(self, hashes_of: Callable[[list[bytes]], NDArray[np.uint64]]) -> NDArray[np.uint64]:
        """The shapes that were looked at whatever they were, as the kernel writes them, once no more come."""
        if self._hashes is None:
            self._hashes = hashes_of(list(self._free.values()))
        return self._hashes

    def passes(self, shape: bytes, example: bytes) -> bool:
        """Whether lines of a shape are looked at."""
        if shape in self._free:
            return True
        if self.is_open:
            if _IGNORED.search(shape.lower()):
                return False
            self._free[shape] = example[:MAX_SHAPE_BYTES]
            return True
        meaning = meaning_of_shape(shape)
        return meaning == TELLS or (meaning == NAMES and names_value(shape))
