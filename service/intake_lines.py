"""JSON bodies checked by the worker's own decoder, and cut into messages of one run each.

Every line goes on as it came, rejected ones included: they travel with the line before them, so that the
worker rejects them once more and is the only one that counts and keeps them. Only a line that fits no
message stays behind; its sender is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pydantic_core import from_json, to_json

from ingest.arrow_frames import CONTINUATION
from ingest.blocks import RecordBatch, Rejected
from ingest.decode import Decoder, line_pieces

from .intake_config import IntakeConfig
from .intake_problem import IntakeProblem

_SOURCE = "the body"
_PIECE_BYTES = 4 << 20
"""Lines decoded at once: 13 000 records, at which the columnar reader is at full speed."""


@dataclass(frozen=True, slots=True)
class IntakeMessage:
    """What goes on as one message: lines or rows of one run."""

    run: str
    value: bytes
    content_type: str | None
    records: int
    """How many of its lines or rows were accepted."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What became of a body: how many lines were accepted, why the others were not, what goes on."""

    accepted: int
    rejected: int
    """Whole lines, elements or rows."""
    why: tuple[Rejected, ...]
    """Rejected lines and values; the offset is the number of the line, from 1, or -1."""
    messages: tuple[IntakeMessage, ...]


def check_lines(data: bytes, decoder: Decoder, config: IntakeConfig) -> Checked:
    """JSON lines, each by itself.

    Raises:
        IntakeProblem: 413, too many lines or runs.
    """
    data = data if data.endswith(b"\n") else data + b"\n"
    check_count(data.count(b"\n"), config)
    runs: list[str] = []
    why: list[Rejected] = []
    first_line = 1
    for piece in line_pieces(data, _PIECE_BYTES):
        # columns of the whole body would be many times its size where each line has names of its own
        batch = decoder.decode_lines(piece, _SOURCE, first_line)
        runs.extend(_runs_in_order(batch))
        why.extend(batch.rejected)
        first_line += piece.count(b"\n")
    rejected = [one.offset for one in why if one.whole]
    names = set(runs)
    check_runs(len(names), config)
    if not runs:
        messages: Iterator[IntakeMessage] = iter(())
    elif len(names) == 1 and not rejected:
        messages = _whole(data, runs[0], config)
    else:
        messages = _by_run(data, runs, frozenset(rejected), config)
    return Checked(len(runs), len(rejected), tuple(why), tuple(messages))


def check_json(data: bytes, decoder: Decoder, config: IntakeConfig) -> Checked:
    """One record, or an array of records: an element is then what a line is.

    Raises:
        IntakeProblem: 400, no JSON; 413, too many elements or runs.
    """
    try:
        document = from_json(data)
    except ValueError as error:
        raise IntakeProblem(400, "bad-json", f"the body must be JSON: {error}") from error
    elements = document if isinstance(document, list) else [document]
    if not elements:
        raise IntakeProblem(400, "empty-body", "the body must hold records, got an empty array")
    check_count(len(elements), config)
    lines = [to_json(element, inf_nan_mode="constants") for element in elements]
    return check_lines(b"\n".join(lines) + b"\n", decoder, config)


def check_count(lines: int, config: IntakeConfig) -> None:
    """Refuse a body of too many lines, elements or rows.

    Raises:
        IntakeProblem: 413.
    """
    if lines > config.max_lines:
        raise IntakeProblem(
            413, "too-many-lines", f"a body must have at most {config.max_lines} lines, got {lines}"
        )


def check_runs(runs: int, config: IntakeConfig) -> None:
    """Refuse a body of too many runs.

    Raises:
        IntakeProblem: 413.
    """
    if runs > config.max_runs:
        raise IntakeProblem(
            413, "too-many-runs", f"a body must hold at most {config.max_runs} runs, got {runs}"
        )


def _runs_in_order(batch: RecordBatch) -> Iterator[str]:
    """The run of each accepted line, in order: an event stands after the records that came before it."""
    names = [batch.runs[code] for code in batch.run_N.tolist()]
    at = 0
    for before, event in batch.events:
        yield from names[at:before]
        yield event.run
        at = before
    yield from names[at:]


def _whole(data: bytes, run: str, config: IntakeConfig) -> Iterator[IntakeMessage]:
    """A body of one run and nothing bad, cut at line ends alone."""
    # one byte more, so that the longest line fits with its end
    for piece in line_pieces(data, config.max_message_bytes + 1):
        lines = sum(1 for line in piece.split(b"\n") if line and not line.isspace())
        if lines:
            yield _message(run, [piece.removesuffix(b"\n")], lines)


def _by_run(
    data: bytes, runs: Sequence[str], rejected: frozenset[int], config: IntakeConfig
) -> Iterator[IntakeMessage]:
    """Lines gathered by run, in order; a rejected one goes with the accepted one before it, or the first."""
    accepted = iter(runs)
    gathered: dict[str, _Gathered] = {}
    run = runs[0]
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line or line.isspace():
            continue
        is_good = number not in rejected
        if is_good:
            run = next(accepted)
        elif len(line) > config.max_message_bytes:
            continue
        here = gathered.setdefault(run, _Gathered())
        if here.lines and here.size + len(line) > config.max_message_bytes:
            yield here.message(run)
            here = gathered[run] = _Gathered()
        here.add(line, is_good=is_good)
    for run, here in gathered.items():
        yield here.message(run)


class _Gathered:
    """Lines of one run that wait to become a message."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.size = 0
        self._good = 0

    def add(self, line: bytes, *, is_good: bool) -> None:
        self.lines.append(line)
        self.size += len(line) + 1
        self._good += is_good

    def message(self, run: str) -> IntakeMessage:
        return _message(run, self.lines, self._good)


def _message(run: str, lines: Sequence[bytes], good: int) -> IntakeMessage:
    value = b"\n".join(lines)
    # Bytes that begin as Arrow does would make the worker take the whole message for it.
    return IntakeMessage(run, b"\n" + value if value.startswith(CONTINUATION) else value, None, good)
