"""What launchers, schedulers and loggers put in front of a message: who printed it, when, and from where.

A prefix names the *printer*, not the culprit. It is looked at once per shape of line, so it is read by plain
rules, one part after the other: whatever stands at the front and is a known form is taken off.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

MAX_PARTS = 24
"""Parts of one prefix that are taken off; the longest real one (a time, brackets, ranks, a place) has ten."""
MAX_PREFIX_BYTES = 512


class Part(StrEnum):
    """What a part of a prefix says."""

    TIME = "time"
    HOST = "host"
    RANK = "rank"
    LOCAL_RANK = "local_rank"
    WORLD = "world"
    PID = "pid"
    LEVEL = "level"
    SOURCE = "source"
    DP = "dp"
    PP = "pp"
    TP = "tp"
    CP = "cp"
    EP = "ep"


@dataclass(frozen=True, slots=True)
class Field:
    """One part, as the bytes ``[start, stop)`` of the line."""

    what: Part
    start: int
    stop: int

    def of(self, line: bytes) -> str:
        """Its text in ``line``, or in another line with the same shape and places."""
        return line[self.start : self.stop].decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Prefix:
    """The front of a line: its message begins at ``end``."""

    end: int
    fields: tuple[Field, ...] = ()

    def get(self, what: Part) -> Field | None:
        """The last part of this sort: what stands nearest to the message knows best."""
        return next((field for field in reversed(self.fields) if field.what is what), None)


def printer_of(prefix: Prefix, line: bytes) -> Field | None:
    """The rank of whoever printed ``line``; None where the prefix does not tell.

    Behind the number of a task (``3: [default7]:``) torchrun's local rank says that the task is a node: which
    rank that is, only its rendezvous knows.

    >>> [printer_of(read_prefix(line), line) for line in (b"3: [default7]: loss", b"[default7]: loss")]
    [None, None]
    """
    rank, local = prefix.get(Part.RANK), prefix.get(Part.LOCAL_RANK)
    if rank is None or local is None or rank.start > local.start:
        return rank
    is_of_nccl = (
        line[local.start - 1 : local.start] == b"["
    )  # ``node-3:310:310 [0] NCCL``, printed by the rank
    return rank if is_of_nccl else None


_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_ZONE = r"(?:Z|(?: ?(?:UTC|GMT))?[+-]\d\d:?\d\d\b| (?:UTC|GMT)\b)"
_CLOCK = rf"\d{{1,2}}:\d\d:\d\d(?:[.,:]\d{{1,9}})?(?: ?[AP]M)?{_ZONE}?"
_DATE = r"(?:\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[/.]\d{1,2}(?:[/.](?:\d{4}|\d\d))?|\d{8})"
_DATED = (
    rf"(?:{_DATE}[-T ,_:]{{1,2}}{_CLOCK}|"
    rf"(?:{_DAY},? )?\d{{1,2}} {_MONTH} \d{{4}} {_CLOCK}|"
    rf"(?:{_DAY},? )?{_MONTH} {{1,2}}\d{{1,2}} (?:\d{{4}} )?{_CLOCK}(?: [A-Z]{{3,4}}\b)?(?: \d{{4}})?)"
)
_TIME = rf"(?P<time>{_DATED}|{_CLOCK})"
_EPOCH = r"(?P<time>1[0-9]{9}(?:\.\d{1,9}|\d{3}|\d{6}|\d{9})?)"
_LEVELS = (
    "TRACE|DEBUG|INFO|NOTICE|WARNING|WARN|ERROR|CRITICAL|FATAL|SUCCESS|Info|Warning|Error|info|warning|error"
)
_LEVEL = rf"(?P<level>{_LEVELS})"
_AT = r"(?P<source>[\w./$<>-]{1,120}\.(?:py|cpp|cc|cu|h|hpp|c|go|rs|java|scala|jl)):\d+(?::[\w.<>]{1,80})?"
_HOST = r"(?P<host>[A-Za-z][\w-]{0,80}(?:\.[\w-]{1,80}){0,8})"
_NO_WORD_OF_RECORDS = (
    r"(?!(?i:train|valid|val|eval|test|training|validation|dev|train_inner|step|iter|itr|it|iteration|epoch|"
    r"update|batch|loss|lr|nccl)\b)"
)
_NAME = rf"{_NO_WORD_OF_RECORDS}(?P<source>[A-Za-z_][\w.$-]{{0,80}})"
_MODULE = r"(?P<source>[A-Za-z_]\w{0,40}(?:\.[A-Za-z_]\w{0,40}){1,8})"
_WITH_HYPHEN = r"(?=[A-Za-z][\w.]{0,60}-[\w.-]{0,60})(?=[A-Za-z.-]{1,60}\d)"
_OF_HOSTS = r"(?=(?:node|host|worker|compute|dgx|nid|cn|ip|pod)[A-Za-z]{0,20}\d)"
_AXIS = re.compile(rb"\b(DP|PP|TP|CP|EP)[=:](\d+)")

_FORMS = (
    # who printed it: launchers and schedulers
    r"\[(?:rank|Rank|RANK)[ :=]?(?P<rank>\d+)\]:?",
    r"\((?:rank|Rank)[ :=]?(?P<rank>\d+)\):?",
    r"(?:rank|Rank|RANK)[ :=]?(?P<rank>\d+)(?:[:,|]|(?= - ))",
    r"\[(?:\d+,)?(?P<rank>\d+)\]<std(?:out|err)>:?",
    r"\[\d+,mpirank:(?P<rank>\d+),(?P<host>[\w.-]{1,120})\]<std(?:out|err)>:?",
    r"\[(?:default|trainer|worker|local_rank|proc|process|gpu|task)_?(?P<local_rank>\d+)\]:?",
    r"\([\w<>.: -]{0,80}?pid=(?P<pid>\d+)(?:, ip=(?P<host>[\w.:-]{1,80}))?\)",
    r"\[?(?P<host>[A-Za-z][\w.-]{0,120}):(?P<rank>\d+)/(?P<world>\d+)\]",
    r"\((?P<rank>\d+)/(?P<world>\d+)\)(?= )",
    rf"\[(?:{_LEVEL}\|)?[DPTCE]P=\d+(?:[|,][DPTCE]P=\d+){{0,4}}(?:\|[^\]\n]{{0,120}})?\]:?",
    rf"{_HOST}:(?P<pid>\d+):\d+ \[(?P<local_rank>\d+)\](?= NCCL)",
    r"\| Training Device=xla:\d+/(?P<rank>\d+)",
    r">+(?= )",
    r"\d{1,7}\.\d{1,3}s[ \t|]{1,3}\d{1,6}[ \t|]{1,3}(?=\D)",
    r"(?P<host>\d{1,3}(?:\.\d{1,3}){3}):(?= )",
    r"DLL(?= \d{4}-)",
    rf"\[(?P<time>\d{{4}} {_CLOCK}) @(?P<source>[\w.]{{1,80}}):\d+\]",
    r"\[pod/(?P<host>[\w.-]{1,120})/[\w.-]{1,120}\]",
    r"\d{1,4}\|[A-Za-z][\w.-]{0,40} {1,40}\|(?= )",
    rf"{_NO_WORD_OF_RECORDS}(?P<host>[A-Za-z][\w.-]{{0,80}}[-_]\d{{1,6}}) {{1,40}}\|(?= +[^\d ])",
    rf"(?P<host>(?:{_WITH_HYPHEN}|{_OF_HOSTS})[\w.-]{{3,120}}):(?= +(?:[^\d \n-]|\d{{4}}-))",
    # when, how grave, from where: loggers
    rf"(?P<level>[IWEF])(?P<time>\d{{4}}(?:\d{{4}})? {_CLOCK}) +\d+ {_AT}\]",
    rf"\[(?P<level>[IWEF])(?P<time>\d{{4}} {_CLOCK})? {_AT}\]",
    rf"\[NeMo (?P<level>[A-Z]) {_TIME} (?P<source>[\w.]{{1,80}}):\d+\]",
    rf"\[{_TIME}(?: (?P<source>[A-Za-z_][\w.]{{0,80}}))?\]:?",
    r"\[ {0,6}(?P<time>\d{1,9}\.\d{6})\]",
    rf"\[{_LEVEL}[|: ]{_AT}(?: {_TIME})?\]:?",
    rf"\[{_LEVEL} *\]:?",
    rf"\[ ?{_LEVEL} ?: ?{_TIME} ?\]:?",
    rf"\[{_TIME}:{_LEVEL}(?::[\w.]{{1,80}}){{0,3}}\]:?",
    rf"{_LEVEL}\|(?=\S)",
    rf"{_LEVEL}:{_NAME}:(?!\d)",
    rf"{_LEVEL}(?=[\s:|\-\[]):?",
    rf"[\[(]{_AT}[\])]:?",
    rf"{_AT}(?: ?[-|:])(?!\d)",
    rf"\[{_NAME}\](?= ?(?:\[|\d{{4}}-|- |(?:{_LEVELS})\b))",
    rf"{_TIME}(?=[\s\]|:,\[(-]|$)",
    rf"{_EPOCH}(?=[ :|] {{0,4}}[A-Za-z\[({{])",
)
_FORMS_OF_LOGGERS = (
    # plain words, and hence only behind a time or a level
    r"std(?:out|err) [FP](?= )",
    rf"[\[(]{_NAME}(?::\d+)?[\])]:?",
    rf"{_HOST}:(?P<rank>\d+) +{_MODULE}:\d+(?= +(?:{_LEVELS})\b)",
    rf"{_NO_WORD_OF_RECORDS}(?P<source>[\w.$]{{1,80}}(?::[\w<>.]{{1,80}})?:\d+)(?= ?[-|] )",
    rf"{_NAME}(?= {{0,20}}[-|] )",
    rf"{_NAME}(?= (?:{_LEVELS})(?:[ :]|$))",
    r"(?P<level>[IWEF])(?= [\w./]{1,120}:\d+\])",
    r"[\w./]{1,120}:\d+\]",
    r"(?P<source>root|__main__):(?= )",
)
_OF_SYSLOG = rf"{_HOST} (?P<source>kernel|[\w.@/-]{{1,80}}(?:\(\w+\))?\[(?P<pid>\d+)\]):(?= )"
_TASK = r"(?:(?P<rank>\d{1,6}):|\[(?P<rank2>\d{1,6})\]:?)(?= )"

_FRONT, _BEHIND = (
    tuple(re.compile(form.encode()) for form in forms) for forms in (_FORMS, (_OF_SYSLOG, *_FORMS_OF_LOGGERS))
)
_ALL = (*_FRONT, *_BEHIND)
_TASK_FORM = re.compile(_TASK.encode())
_VALUE_FIRST = re.compile(
    rb"(?i)[ \t]*(?:[a-z_#][\w /.#-]{0,60}?[ \t]*[:= ][ \t]*)?[-+]?(?:\d|\.\d|nan\b|inf\b)"
)
_NUMBER_FIRST = re.compile(rb"[ \t]*[-+]?[\d.]")
_COUNTER = re.compile(rb"(?i)\b(?:iter|itr|iteration|step|global_step|epoch|update)s?\b|\d+/\d+")
_TIME_FIRST = re.compile(rf"[ \t\[]*(?:{_DATED}|{_CLOCK})".encode())
_ALIKE = bytes.maketrans(b"123456789", b"000000000")
_BLANKS = re.compile(rb"[ \t]*")
_GAP = re.compile(r"[ \t]*(?:(?:>>|\||–|-|:|,)(?=[ \t\[(]|[A-Z])[ \t]*){0,4}".encode())


def read_prefix(line: bytes) -> Prefix:
    """What stands in front of the message of ``line``, and says who printed it, when and from where.

    >>> prefix = read_prefix(b"[rank3]:[titan] 2024-04-09 20:45:10,250 - root - INFO - step: 54  loss:  2.7")
    >>> [(field.what.value, field.start) for field in prefix.fields], prefix.end
    ([('rank', 5), ('source', 9), ('time', 16), ('source', 42), ('level', 49)], 56)
    """
    front = line[:MAX_PREFIX_BYTES]
    if front[:10].isdigit():  # seconds since 1970 are told from other numbers by their digits
        return _read_front(front)
    return _read_masked(front.translate(_ALIKE))


@lru_cache(maxsize=2048)
def _read_masked(front: bytes) -> Prefix:
    """Of fronts that differ in digits alone the first is read: no other form looks at which digit it is."""
    return _read_front(front)


def _read_front(front: bytes) -> Prefix:
    at, fields = 0, list[Field]()
    if (task := _task(front)) is not None:
        at, fields = task.end(), _fields_of(task)
    for _ in range(MAX_PARTS):
        begin = _end(_GAP if at else _BLANKS, front, at)
        found = _next_part(front, begin, fields)
        if found is None:
            break
        fields += _fields_of(found)
        at = found.end()
    return Prefix(_end(_GAP, front, at), tuple(fields)) if at else Prefix(0)


def _end(form: re.Pattern[bytes], front: bytes, at: int) -> int:
    found = form.match(front, at)
    return at if found is None else found.end()


def _next_part(front: bytes, at: int, before: list[Field]) -> re.Match[bytes] | None:
    is_of_logger = any(field.what in (Part.TIME, Part.LEVEL) for field in before)
    forms = _ALL if is_of_logger else _FRONT
    return next((found for form in forms if (found := form.match(front, at)) and found.end() > at), None)


def _task(front: bytes) -> re.Match[bytes] | None:
    """The number of a task in front of its line; it is a step where the line counts nothing else."""
    found = _TASK_FORM.match(front, _end(_BLANKS, front, 0))
    if found is None:
        return None
    rest = front[found.end() :]
    is_counted = not _NUMBER_FIRST.match(rest) and _COUNTER.search(rest)
    is_task = _TIME_FIRST.match(rest) or not _VALUE_FIRST.match(rest) or is_counted
    return found if is_task else None


def _fields_of(found: re.Match[bytes]) -> list[Field]:
    fields = [
        Field(Part(name.rstrip("2")), *found.span(name))
        for name in found.re.groupindex
        if found.start(name) >= 0
    ]
    if b"P=" in found[0]:
        fields += [
            Field(Part(axis[1].decode().lower()), *(found.start() + place for place in axis.span(2)))
            for axis in _AXIS.finditer(found[0])
        ]
    return sorted(fields, key=lambda field: field.start)
