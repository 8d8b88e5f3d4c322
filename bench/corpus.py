"""How right the verdicts are on a folder of real logs with labels.

    python -m bench.corpus FOLDER [--json] [--failures] [--only ID …] [--publish]

Each item goes the way of ``firstfault replay``. What counts: the label, over items labelled ``healthy``,
``nan``, ``explosion``, ``drift``, ``spike-recovered`` or ``overflow-skips-benign``; the first bad iteration,
wherever the index gives one, within one printed record; that no healthy or benign item has a confirmed
incident; that nothing crashes. ``corpus_items`` tells what the folder must hold.
"""

from __future__ import annotations

import argparse
import json
import sys
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.corpus_items import Item, Outcome, Told, judge_item, read_index
from bench.quality.publishing import with_part

EXPECTED = {
    "healthy": "healthy",
    "nan": "nan",
    "explosion": "gradient_explosion",
    "drift": "silent_drift",
    "spike-recovered": "healthy",
    "overflow-skips-benign": "healthy",
}
"""The verdict that each label of the index asks for; items of other labels have none that could be wrong."""
BENIGN = tuple(label for label, verdict in EXPECTED.items() if verdict == "healthy")
FLOOR = 0.95
"""Least share of right labels."""
README = Path(__file__).resolve().parent.parent / "README.md"
BEGIN = "<!-- corpus: this part is written by python -m bench.corpus FOLDER --publish -->"
END = "<!-- corpus: end -->"


@dataclass(frozen=True, slots=True)
class Row:
    """An item, its outcome, and what of it is right."""

    item: Item
    outcome: Outcome

    @property
    def counts(self) -> bool:
        """Whether the label can be right or wrong."""
        return self.item.label in EXPECTED

    @property
    def is_label_right(self) -> bool:
        """Whether the verdict is the one that the label asks for.

        A log without any curve in it (loss-scale lines alone) is rightly not called healthy.
        """
        wanted, got = EXPECTED.get(self.item.label), self.outcome.label
        if self.item.label == "overflow-skips-benign" and not self.outcome.unreadable:
            return not self.outcome.confirmed
        return got == wanted

    @property
    def root(self) -> Told | None:
        """The incident whose onset is compared: the first confirmed one, else the first one told."""
        return self.outcome.told[0] if self.outcome.told else None

    @property
    def found_as(self) -> str:
        """As what the index's first bad iteration is told, within one printed record; empty if it is not.

        Of labels that ask for an incident only an incident counts, of the others an annotation too.
        """
        if self.item.first_bad is None:
            return ""
        if self.root is not None and self._is_near(self.root.iteration):
            return self.root.certainty
        is_note_enough = EXPECTED.get(self.item.label, "healthy") == "healthy"
        notes = (note.rpartition("@") for note in self.outcome.notes)
        near = [kind for kind, _, iteration in notes if self._is_near(int(iteration))]
        return near[0] if near and is_note_enough else ""

    @property
    def is_first_bad_right(self) -> bool | None:
        """Whether the onset is the index's within one printed record; None where it gives none."""
        return None if self.item.first_bad is None else bool(self.found_as)

    @property
    def is_false_incident(self) -> bool:
        """Whether a healthy or benign item has a confirmed incident."""
        return self.item.label in BENIGN and bool(self.outcome.confirmed)

    @property
    def faults(self) -> list[str]:
        """What is wrong with it, in a few words each."""
        found = []
        if self.outcome.crash:
            found.append("crash")
        if self.is_false_incident:
            found.append("false incident")
        elif self.counts and not self.is_label_right:
            found.append("label")
        if self.is_first_bad_right is False:
            found.append("first bad")
        return found

    def _is_near(self, iteration: int) -> bool:
        """Whether it is the index's first bad iteration, or at most one printed record from it."""
        assert self.item.first_bad is not None
        low, high = sorted((iteration, self.item.first_bad))
        iterations = self.outcome.iterations
        return bisect_left(iterations, high) - bisect_left(iterations, low) <= 1

    def line(self) -> str:
        """The row of the printed table."""
        outcome, root = self.outcome, self.root
        onset = f"{root.iteration} {root.certainty}" if root else self.found_as or "-"
        got = "CRASH" if outcome.crash else "unreadable" if outcome.unreadable else outcome.label
        cells = (
            f"{self.item.id:28} {self.item.format:23} {self.item.label:22} {got:19}",
            f"{'-' if self.item.first_bad is None else self.item.first_bad!s:>8} {onset:18}",
            f"{outcome.seconds:6.2f} s  {', '.join(self.faults)}",
        )
        return " ".join(cells).rstrip()

    def reason(self) -> str:
        """What came, for whoever looks into a wrong row."""
        outcome = self.outcome
        if outcome.crash or outcome.unreadable:
            return outcome.crash or outcome.unreadable
        told = [
            f"{t.certainty} {t.pattern} of {t.metric} in ({t.last_clean}, {t.first_bad}]"
            for t in outcome.told
        ]
        counted = f"{len(outcome.iterations)} iterations"
        return "; ".join((f"runs {', '.join(outcome.labels)}", counted, *told, *outcome.notes[:6]))


@dataclass(frozen=True, slots=True)
class Sums:
    """What all rows come to."""

    rows: Sequence[Row]

    @property
    def counted(self) -> list[Row]:
        """Rows whose label can be right or wrong."""
        return [row for row in self.rows if row.counts]

    @property
    def dated(self) -> list[Row]:
        """Rows for which the index gives a first bad iteration."""
        return [row for row in self.rows if row.is_first_bad_right is not None]

    @property
    def label_share(self) -> float:
        """Share of right labels; 1 if there are none to be right."""
        return sum(row.is_label_right for row in self.counted) / max(len(self.counted), 1)

    @property
    def false_incidents(self) -> int:
        """Healthy and benign items with a confirmed incident."""
        return sum(row.is_false_incident for row in self.rows)

    @property
    def crashes(self) -> int:
        """Items that ended in an exception or never."""
        return sum(bool(row.outcome.crash) for row in self.rows)

    @property
    def holds(self) -> bool:
        """Whether all that is asked for holds."""
        dated = all(row.is_first_bad_right for row in self.dated if row.counts)
        return self.label_share >= FLOOR and dated and not self.false_incidents and not self.crashes

    def lines(self) -> Iterator[str]:
        """The sums, a line each."""
        rows, counted = self.rows, self.counted
        right = sum(row.is_label_right for row in counted)
        yield f"labels right     {right} of {len(counted)} ({self.label_share:.1%}, floor {FLOOR:.0%})"
        for which, dated in (
            ("labels that count", [row for row in self.dated if row.counts]),
            ("other labels", [row for row in self.dated if not row.counts]),
        ):
            right = sum(bool(row.is_first_bad_right) for row in dated)
            yield f"first bad right  {right} of {len(dated)}, {which}"
        benign = sum(row.item.label in BENIGN for row in rows)
        yield f"false incidents  {self.false_incidents} of {benign} healthy or benign items"
        yield f"crashes          {self.crashes} of {len(rows)}"
        yield f"unreadable       {sum(bool(row.outcome.unreadable) for row in rows)} of {len(rows)}"


def main(arguments: Sequence[str]) -> int:
    """Print the table; 0 if all that is asked for holds."""
    if not arguments:
        print("corpus: give a folder of logs with an index.jsonl to judge, see the docstring")
        return 0
    options = _parser().parse_args(arguments)
    rows: list[Row] = []
    for item in read_index(options.folder):
        if options.only and item.id not in options.only:
            continue
        row = Row(item, judge_item(item))
        rows.append(row)
        _show(row, options)
    sums = Sums(rows)
    print("\n".join(sums.lines()), file=sys.stderr if options.json else sys.stdout)
    if options.publish:
        README.write_text(with_sums(README.read_text(encoding="utf-8"), sums), encoding="utf-8")
    return 0 if sums.holds else 1


def with_sums(readme: str, sums: Sums) -> str:
    """The README with what the rows come to between its two marks.

    Raises:
        ValueError: the README has not the two marks, in order.
    """
    formats = len({row.item.format for row in sums.rows})
    told = "\n".join(sums.lines())
    title = f"On {len(sums.rows)} logs in {formats} formats:"
    return with_part(readme, BEGIN, END, f"{title}\n\n```text\n{told}\n```\n")


def _show(row: Row, options: argparse.Namespace) -> None:
    if options.json:
        plain = {"id": row.item.id, "format": row.item.format, "expected": row.item.label}
        known = {"first_bad_iteration": row.item.first_bad, "faults": row.faults}
        print(json.dumps(plain | known | row.outcome.to_plain()), flush=True)
    elif row.faults or not options.failures:
        print(row.line(), flush=True)
        if row.faults:
            print("    " + row.reason().replace("\n", "\n    "), flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.corpus", description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="the folder with the index.jsonl")
    parser.add_argument("--json", action="store_true", help="one JSON object per item instead of the table")
    parser.add_argument("--failures", action="store_true", help="only the items of which something is wrong")
    parser.add_argument("--publish", action="store_true", help="write what it comes to into the README")
    parser.add_argument("--only", nargs="+", metavar="ID", help="only these items")
    return parser


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
