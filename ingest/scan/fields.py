r"""The values of a line, and the key that each belongs to: read off the line's shape.

A value is a number or a word for one (``nan``). Its key is what stands between it and the value before:
``loss: \0``, ``'loss': \0``, ``| lm loss: \0``, ``loss \0``, ``Loss is \0``. In ``train_loss[loss=\0`` the
block names the key. What has no key is a total (``12/\0``), a mean (``2.3 (\0)``), a part of a time
(``10:\0``), the next counter (``Epoch [12][\0/3953]``), or nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum

MAX_FIELDS = 512
"""Values of one line: a record of a model with two hundred losses has two hundred and some."""
MAX_GAP_CHARS = 256
"""Of the text between two values what is looked at."""
MAX_KEY_CHARS = 96
MAX_KEY_WORDS = 8

_VALUE = re.compile(
    r"\x00(?P<broken>#(?:QNAN|SNAN|IND|INF)\w*)?"
    r"|(?<![A-Za-z0-9_.\-])(?P<sign>[+-]?)\.?(?:(?P<nan>nan)|(?P<inf>inf(?:inity)?))"
    r"(?:xxx|ms|s|(?=[a-z]{1,12}[:(\[]))?(?![A-Za-z0-9_.]*[A-Za-z0-9_])(?P<tail>)"
    r"|(?:(?<=[:=])|(?<=[:=] ))(?P<sign2>[+-]?)(?:(?P<nan2>nan)|(?P<inf2>inf))(?=[a-z]{1,12}[:(\[])",
    re.IGNORECASE,
)
_MULTIPLIERS = {"K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_SUFFIX = re.compile(r"[KkMGT](?![A-Za-z])|[A-Za-zµ%][A-Za-z/%]*")
_RATE = re.compile(r" ?[A-Za-z]+/[A-Za-z]+(?=\s|$)")
_AFTER = re.compile(r" ?([A-Za-z][A-Za-z/]*)(?=\s*(?:[,|;)\]\t]|$|\s-\s|\s\s))")
_WRAPPER = re.compile(
    r"(?:tensor|array|float|Array|Decimal|DeviceArray|np\.float\d+|numpy\.float\d+|mean|avg|Some)?[(\[{<\"'$~*#≈]+$"
)
_SEPARATOR = re.compile(r"\s*(?::=|=+>|->|[:=])\s*$")
_CELL = re.compile(r"(?<=\S)\s*\|\s*$")
"""Between the cells of a boxed table, whose first cell is the key."""
_QUOTED_KEY = re.compile(
    r"(?:[\"'](?P<quoted>[A-Za-z][\w./ -]*)[\"']|(?<!\w):(?P<symbol>[A-Za-z]\w*))\s*,\s*$"
)
"""A key that a comma ends: a string of a tuple, a symbol of Lisp, Julia or Ruby."""
_SOURCE = re.compile(r"\w\.(?:py|cc|cpp|cxx|c|cu|h|hpp|java|scala|kt|go|rs|lua|jl|js|ts|R):$")
"""A place in a program: ``ctc-loss.cc:182`` is no loss of 182."""
_PICTURES = re.compile(r"^[\u2190-\u2bff\ufe0f\u200d\U0001f000-\U0001faff]+\s*")
"""In front of a name: ``🚀 step``."""
_QUOTES = "\"'`*_“”‘’"
_HARD = re.compile(
    r"[|,;{}()<>\"'\t!?\[\]=•·]|\s\s|(?<=\.)\s|(?:^|\s)[-–—*+>]+(?=\s|$)|:(?=\s|$)|^[-+/.:]+|\x00"
)
_PARENTHESES = re.compile(r"\s*\([^()]{0,40}\)$")
_BLOCK = re.compile(r"([A-Za-z_][\w./ -]*?)[\"']?\s*[:=]?\s*[\[{(]+[\s\"']*$")
_VERBS = re.compile(r"(?:\s+(?:is|was|are|of|now|currently|equals|at|to|got))+$", re.IGNORECASE)
_AT_VALUE = re.compile(r"[:=,|(\[{<'\"±]\s*$")
_IN_SENTENCE = re.compile(r"[ -][A-Za-z]")
_NAME_OF_LOSS = re.compile(r"(?:loss|norm|ppl|acc|is|avg|\d)\s*$|^\s*$", re.IGNORECASE)
_METRIC_AND_BLANK = re.compile(r"(?:loss|norm|ppl)\s+$", re.IGNORECASE)
_WORD_AND_BLANKS = re.compile(r"\s*[A-Za-z][\w./-]*\s{2,}")
"""A name and its value in two columns."""
_KEY_AND_VALUE = re.compile(r"\s[A-Za-z][\w./-]*(?: ?[:=])? ?(?:\x00|[+-]?nan|[+-]?inf)", re.IGNORECASE)
_WORD_OF_VALUE = re.compile(r"[A-Za-z][\w.-]* (?=[A-Za-z])")
_UNIT = re.compile(r"\s*\((?:ms|s|sec|us|min)\)$")
SPLITS = frozenset({"train", "training", "val", "valid", "validation", "test", "eval"})
"""Words of a part of the loop, which may stand where a key would."""
_RANGE = re.compile(r"-\s*")
_BARE_VERBS = ("is", "was", "=", ":")
_AT_COUNTER = re.compile(r"(?P<name>.+?) (?:at|after|for) (?P<counter>iteration|iter|step|epoch|update)")
_AND_COUNTER = re.compile(r" and (?:step|iteration|iter|epoch)$")
_SOURCE_FILE = re.compile(r"\.(?:cc|cpp|cu|py|lua|java|scala|rs|go|jl|c|h)$")
_FILLER = re.compile(r"[\s.…_-]+$")


class Place(Enum):
    """How a value stands to the values before it."""

    KEYED = "keyed"
    ALONE = "alone"
    FIRST = "first"
    """Without a key at the start of the message."""
    TOTAL = "total"
    NEXT = "next"
    """Follows in brackets: the next counter."""
    LIST = "list"
    r"""One more of a list that began with a value with a key: ``loss: [\0][\0]``."""
    MEAN = "mean"
    """In parentheses or behind ±: says something of the value before."""
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Field:
    """One value of a line."""

    key: str
    place: Place
    slot: int
    """Number of the slot it stands in; -1 where the shape itself says the value."""
    constant: float = 0.0
    factor: float = 1.0
    separator: str = ""
    """``:``, ``=``, a blank; empty without a key."""
    after: str = ""
    """The word behind the value: a unit, or a name where there is no key."""
    block: str = ""


def read_fields(message: str, first_slot: int = 0) -> list[Field]:
    r"""All values of the shape of a message, in order; its slots are counted from ``first_slot``.

    >>> [(each.key, each.slot, each.place.value) for each in read_fields("step \0/ \0 | lm loss: \0 |")]
    [('step', 0, 'keyed'), ('', 1, 'total'), ('lm loss', 2, 'keyed')]
    """
    fields: list[Field] = []
    slot, end, block = first_slot, 0, ""
    for match in _VALUE.finditer(message):
        gap = message[max(end, match.start() - MAX_GAP_CHARS) : match.start()]
        is_slot = match[0].startswith("\0")
        if not is_slot and _is_mentioned(gap, message[match.end() :]):
            continue
        end = match.end()
        block = _block_after(gap, block)
        place, key, separator, inner = _key_of(gap, is_first=not fields)
        block = inner or block
        if place is Place.NEXT and fields and _is_listed(fields[-1], gap):
            place = Place.LIST
        if place is Place.TIME and _RANGE.fullmatch(gap) and fields[-1].place in (Place.KEYED, Place.NEXT):
            _, after, end = _suffix(message, end)
            fields[-1] = replace(fields[-1], slot=slot, after=after)  # of a range the end counts
            slot += is_slot
            continue
        if fields and (told := _told_with_counter(fields[-1], gap, place, is_slot=is_slot)):
            place, key, separator = Place.KEYED, told[0], ":"
            fields[-1] = replace(fields[-1], key=told[1])
        factor, after, end = _suffix(message, end)
        own = slot if is_slot and not match["broken"] else -1
        inside = block if place is Place.KEYED else ""
        separator = "(" if place is Place.MEAN and gap.strip() == "(" else separator
        fields.append(Field(key, place, own, _constant(match), factor, separator, after, inside))
        slot += is_slot
        if place is Place.TIME and len(fields) > 1:
            fields[-2] = _as_time(fields[-2])
        if len(fields) == MAX_FIELDS:
            break
    return fields


def _told_with_counter(before: Field, gap: str, place: Place, *, is_slot: bool) -> tuple[str, str] | None:
    """The keys of a value and of the counter before it, where one key names both; else None."""
    if gap.strip() in _BARE_VERBS and (named := _AT_COUNTER.fullmatch(before.key)):
        return named["name"], named["counter"]  # loss at step 12: 2.31
    is_pair = gap == " " and is_slot and before.place is Place.KEYED and before.separator == " "
    if is_pair and place is Place.ALONE and before.key.endswith("loss"):
        return before.key, "step"  # Train loss 12 2.31
    return None


def _is_mentioned(gap: str, rest: str) -> bool:
    """Whether the word nan or inf is part of a name or a sentence: ``number of nan iterations: 0``."""
    if (
        _AT_VALUE.search(gap)
        or (not rest and _WORD_AND_BLANKS.fullmatch(gap))
        or (_METRIC_AND_BLANK.search(gap) and _KEY_AND_VALUE.match(rest))
    ):
        return False
    return _IN_SENTENCE.match(rest) is not None or not _NAME_OF_LOSS.search(gap)


def _is_listed(before: Field, gap: str) -> bool:
    is_value = before.place in (Place.KEYED, Place.LIST) and "epoch" not in before.key.lower()
    return gap == "][" and is_value and before.key.lower() not in SPLITS


def _constant(match: re.Match[str]) -> float:
    """The value that the shape says: a broken number of a Windows runtime, or a word."""
    broken = match["broken"]
    if broken:
        return float("inf") if broken.startswith("#INF") else float("nan")
    if match["nan"] or match["nan2"]:
        return float("nan")
    return float("-inf") if "-" in (match["sign"] or match["sign2"] or "") else float("inf")


def _as_time(field: Field) -> Field:
    return Field("", Place.TIME, field.slot)


def _suffix(message: str, end: int) -> tuple[float, str, int]:
    """The factor of a value that ends at ``end``, the word behind it, and where what is glued to it ends."""
    glued = _SUFFIX.match(message, end)
    if glued is not None:
        return _MULTIPLIERS.get(glued[0], 1.0), glued[0], glued.end()
    rate = _RATE.match(message, end)
    if rate is not None:
        return 1.0, rate[0].strip(), rate.end()
    after = _AFTER.match(message, end)
    return 1.0, "" if after is None else after[1], end


def _key_of(gap: str, *, is_first: bool) -> tuple[Place, str, str, str]:
    """Place, key, separator and block of the value behind ``gap``."""
    bare = gap.strip()
    unkeyed = _unkeyed(gap, bare, is_first=is_first)
    if unkeyed is not None:
        return unkeyed, "", "", ""
    if _SOURCE.search(gap):
        return Place.ALONE, "", "", ""
    quoted = _QUOTED_KEY.search(gap)
    if quoted is not None:
        return Place.KEYED, (quoted["quoted"] or quoted["symbol"]).strip(), ",", ""
    text = _WRAPPER.sub("", gap.rstrip())
    found = _CELL.search(text) if is_first else None
    found = found or _SEPARATOR.search(text)
    separator = " " if found is None else found[0].strip()
    text = (text if found is None else text[: found.start()]).rstrip()
    if found is None and text and text == gap:  # nothing stands between: a name that ends in the number
        return Place.ALONE, "", "", ""
    key, inner = _name_in(text)
    if not key or (separator == ":" and _SOURCE_FILE.search(key)):
        return (Place.FIRST if is_first else Place.ALONE), "", "", ""
    return Place.KEYED, key, separator, inner


def _unkeyed(gap: str, bare: str, *, is_first: bool) -> Place | None:
    """The place of a value with no letters before it, None if there are some."""
    if any(letter.isalpha() for letter in bare):
        return Place.TOTAL if bare in ("of", "out of") else None
    if is_first:
        return Place.FIRST
    if bare == "/":
        return Place.TOTAL
    if gap in (":", "<") or _RANGE.fullmatch(gap):
        return Place.TIME
    if bare in ("(", "±", "+/-", "+-", "[±", "(±", "(avg:", "~"):
        return Place.MEAN
    if bare in ("][", "] [", ":", "[", "]", "|", "],[", "]:["):
        return Place.NEXT
    return Place.ALONE


def _name_in(text: str) -> tuple[str, str]:
    """The key at the end of ``text`` and the block that opens right before it."""
    unit = _UNIT.search(text)
    text = _PARENTHESES.sub("", text).replace("'s ", " ")
    text = _FILLER.sub("", text.rstrip(_QUOTES + " "))
    text = _VERBS.sub("", text)
    start = 0
    for hard in _HARD.finditer(text):
        start = hard.end()
    start += _value_before(text, start)
    key = _PICTURES.sub("", text[start:].strip(_QUOTES + " ").lstrip("-/"))
    inner = _BLOCK.search(text[:start])
    words = _AND_COUNTER.sub("", key).split()
    key = " ".join(words[-MAX_KEY_WORDS:])[-MAX_KEY_CHARS:]
    if not any(letter.isalpha() for letter in key):
        return "", ""
    key += "" if unit is None else f" {unit[0].strip()}"
    return key, "" if inner is None else inner[1].split()[-1].strip(_QUOTES)


def _value_before(text: str, start: int) -> int:
    """The length of a word that is the value of the key before: ``level=info step``."""
    word = _WORD_OF_VALUE.match(text, start) if text[start - 1 : start] == "=" else None
    return 0 if word is None else len(word[0])


def _block_after(gap: str, block: str) -> str:
    """The block that is still open behind ``gap``."""
    return "" if block and any(end in gap for end in "]})") else block
