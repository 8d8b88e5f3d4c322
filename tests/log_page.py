"""The tables of `docs/logs.md`, from those of the scanner: `python -m tests.log_page` writes them anew."""

from __future__ import annotations

from pathlib import Path

from firstfault.telemetry import EventKind
from ingest.scan.dialects import DIALECTS
from ingest.scan.noise import NOISE
from ingest.scan.sentence_table import SENTENCES
from ingest.scan.sentences import Sentence

PAGE = Path(__file__).parent.parent / "docs" / "logs.md"
BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"
_BECOMES = {
    EventKind.LOSS_SCALE: "event `loss_scale`",
    EventKind.CHECKPOINT: "event `checkpoint`",
    EventKind.RESUME: "event `resume`",
    EventKind.LR_CHANGE: "event `lr_change`",
    EventKind.HARDWARE: "event `hardware`",
    EventKind.HEARTBEAT: "two `heartbeat` events",
    EventKind.RUN_END: "event `run_end`",
}


def tables() -> str:
    """The tables, as they stand between the marks."""
    parts = [
        "### Dialects",
        _table(
            ("dialect", "what is special", "a line of it"),
            [(each.name, each.note, _code(each.example)) for each in DIALECTS],
        ),
        "### Sentences",
        _table(
            ("tool", "what it tells", "what becomes of it", "as it is printed"),
            [(each.tool, each.meaning, _becomes(each), _code(each.example)) for each in SENTENCES],
        ),
        "### Numbers that are no telemetry",
        _table(("what", "as it is printed"), [(each.name, _code(each.example)) for each in NOISE]),
    ]
    return "\n\n".join(parts)


def page_with(tables_text: str) -> str:
    """The page with these tables between its marks."""
    before, rest = PAGE.read_text("utf-8").split(BEGIN)
    behind = rest.split(END)[1]
    return f"{before}{BEGIN}\n\n{tables_text}\n\n{END}{behind}"


def _becomes(sentence: Sentence) -> str:
    found = sentence.read(sentence.example.encode())
    assert found is not None
    parts = [] if found.event is None else [_BECOMES[found.event]]
    parts += [f"`{name}`" for name in found.metrics]
    who = "" if found.rank is None else ", of the rank it names"
    return (", ".join(parts) or "the rank of what follows") + who


def _code(text: str) -> str:
    return "`` " + text.strip().replace("|", "\\|") + " ``"


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(page_with(tables()), "utf-8")
