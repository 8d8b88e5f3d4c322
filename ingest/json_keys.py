"""JSON lines: whether they are read as our own records, or as those of another logger.

Our decoder is the fastest, and knows flat objects that count in ``iteration``, ``step`` or ``global_step``.
Lines that count in another key, hold objects in objects, or mix training with validation are read by
`json_lines`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from firstfault.telemetry import KEY_ALIASES, RESERVED_KEYS, EventKind
from firstfault.wire import ITERATION_KEYS
from firstfault.wire_values import NONFINITE_TEXT

from .blocks import RecordBatch
from .errors import UnreadableInput
from .json_rows import SAMPLE_RECORDS, JsonRecord, JsonRows
from .role_values import place_of
from .roles import OVERRIDABLE, Role, Roles, meaning_of

_EVENTS = {kind.value for kind in EventKind}
"""Others have a key of that name too: ``{"event": "train", …}``."""
_OURS = RESERVED_KEYS | KEY_ALIASES.keys()


@dataclass(frozen=True, slots=True)
class JsonKeys:
    """What the keys of a file of JSON lines mean.

    ``is_wire``: lines carry run and rank, as our own do. ``is_plain``: our decoder reads them, and
    ``renamed`` maps the keys of some metrics to the names they are read as.
    """

    sample: tuple[JsonRecord, ...] = ()
    roles: Roles = field(default_factory=Roles)
    is_wire: bool = False
    is_plain: bool = True
    renamed: Mapping[str, str] = field(default_factory=dict)

    def rename(self, batch: RecordBatch) -> RecordBatch:
        """The batch with metrics under their canonical names."""
        if not self.renamed.keys() & batch.numbers.keys():
            return batch
        names = {name: self.renamed.get(name, name) for name in batch.numbers}
        return replace(batch, numbers={names[name]: column for name, column in batch.numbers.items()})


def read_keys(head: bytes, wanted: Mapping[str, str]) -> JsonKeys:
    """The meaning of the keys of the objects in ``head``."""
    objects = _sample(head)
    records = tuple(each for each in objects if not _is_event(each))
    half = len(records) / 2
    is_wire = sum("run" in each and "rank" in each for each in records) >= half
    if not records or is_wire or len(records) < len(objects):
        return JsonKeys(is_wire=is_wire, renamed=_given(records, wanted))
    roles = JsonRows.roles_of(records, wanted)
    if not _is_plain(records, roles) and _has_metrics(roles):
        return JsonKeys(records, roles, is_plain=False)
    canonical = {roles.names[at]: metric for at, metric in roles.metrics.items()}
    renamed = {KEY_ALIASES.get(name, name): metric for name, metric in canonical.items()}
    return JsonKeys(records, roles, renamed={name: to for name, to in renamed.items() if name != to})


def _given(records: Sequence[JsonRecord], wanted: Mapping[str, str]) -> dict[str, str]:
    """The metrics of our own lines that a person says are others.

    Raises:
        UnreadableInput: there is no such key, or a role is given, which our lines say themselves.
    """
    names = list(dict.fromkeys(name for record in records for name in record))
    given = {names[place_of(names, name, metric)]: metric for metric, name in wanted.items()}
    for name, metric in given.items():
        if metric in OVERRIDABLE:
            raise UnreadableInput(f"--column {metric}={name}: lines of our own say their {metric} themselves")
    kept = {metric: f"{metric}.2" for metric in given.values() if metric in names and metric not in given}
    return {**kept, **given}


def _is_plain(records: Sequence[JsonRecord], roles: Roles) -> bool:
    """Whether our decoder gives these records the meaning that ``roles`` say."""
    if roles.iteration is None or roles.split is not None or roles.summed or roles.scales:
        return False
    counter = roles.names[roles.iteration]
    said = {name for record in records for name in record}
    ours = {counter, *(roles.names[at] for at in roles.identity.values()), "lr", "learning_rate"}
    if counter not in ITERATION_KEYS or any(name in _OURS and name not in ours for name in said):
        return False
    if any(roles.names[at] != key for key, at in roles.identity.items()):
        return False
    loss = next((roles.names[at] for at, metric in roles.metrics.items() if metric == "loss"), counter)
    return all(_is_flat(record) and _counts(record, counter) and _counts(record, loss) for record in records)


def _has_metrics(roles: Roles) -> bool:
    """Whether there is more than a counter; what holds nothing else is refused line by line."""
    return any(meaning_of(roles.names[at]).role in (Role.METRIC, Role.CONTEXT) for at in roles.metrics)


def _is_event(record: JsonRecord) -> bool:
    what = record.get("event")
    return isinstance(what, str) and what in _EVENTS


def _counts(record: JsonRecord, key: str) -> bool:
    """Whether a value is there, and no number in quotes, which our own lines do not have."""
    value = record.get(key, "")
    return not isinstance(value, str) or value in NONFINITE_TEXT


def _is_flat(record: JsonRecord) -> bool:
    return not any(isinstance(value, dict | list) for value in record.values())


def _sample(head: bytes) -> list[dict[str, object]]:
    from .json_reference import parsed

    objects: list[dict[str, object]] = []
    for line in head.split(b"\n")[:SAMPLE_RECORDS]:
        try:
            value = parsed(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            objects.append(value)
    return objects
