"""Measure how right the verdicts are.

    python -m bench.quality [--full] [--processes 2] [--recorded FOLDER] [--without-peers]
    python -m bench.quality show ORIGIN FAMILY SEED [TIER]

Makes runs with a known truth from seeds that no threshold was tuned on, replays them, scores the verdicts,
asks naive rules and other tools about the same curves, and writes ``bench/results/quality.json`` and ``.md``
and the section of the README. What is done is kept in the cache: a run that was ended goes on where it was,
as long as no line of the source of the judges changes. ``--part 2/8`` does the second of eight parts and
writes nothing; when all are done the same command without it takes everything from the cache.
``--seeds-from 0 --failures FOLDER`` measures on training seeds, writes no results, and lists what went wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from .case import FIRST_BENCHMARK_SEED, NEXT_SEED, Origin, Tier
from .failures import write_failures
from .outliers import outcome_of, trials
from .peers import PEERS, install
from .plan import find_spec, tasks
from .publishing import write_results
from .references import pairs, told
from .results import figures
from .running import kept_of, recorded, rows_of, run_all
from .tables import page
from .tiers import cut

WHOLE = (1, 1)
"""The part that is everything."""


def main(arguments: Sequence[str]) -> int:
    """Measure, or show the log of one case."""
    if arguments[:1] == ["show"]:
        return show(arguments[1:])
    parser = _parser()
    asked = parser.parse_args(arguments)
    if asked.recorded is not None and not asked.recorded.is_dir():
        parser.error(f"--recorded must be a folder of curves, got {str(asked.recorded)!r}")
    missing = [] if asked.without_peers else [why for peer in PEERS if (why := install(peer))]
    peers = [peer.name for peer in PEERS if not any(why.startswith(f"{peer.name} ") for why in missing)]
    planned = tasks(
        asked.seeds_from,
        is_full=asked.full,
        peers=() if asked.without_peers else tuple(peers),
        recorded=asked.recorded,
        only=asked.only,
    )
    if not planned:
        parser.error(f"--only must be how the name of a family begins, got {asked.only!r}")
    if asked.record:
        run_all(kept_of, planned[: asked.limit], processes=asked.processes, say=_say)
        return 0
    chosen = slice(asked.part[0] - 1, asked.limit, asked.part[1])
    made = run_all(rows_of, planned[chosen], processes=asked.processes, say=_say)
    rows = [row for part in made for row in part]
    tried = list(trials(asked.seeds_from, is_full=asked.full)) if not asked.only else []
    outcomes = run_all(outcome_of, tried[chosen], processes=asked.processes, say=_say)
    paired = list(pairs(asked.seeds_from, is_full=asked.full)) if not asked.only else []
    references = run_all(told, paired[chosen], processes=asked.processes, say=_say)
    if asked.part != WHOLE:
        _say("part {} of {} is kept".format(*asked.part))
        return 0
    plain = figures(rows, outcomes, references, missing, is_full=asked.full)
    print(page(plain))
    if asked.failures is not None:
        for path in write_failures(rows, asked.failures):
            _say(f"wrote {path}")
    elif asked.seeds_from >= FIRST_BENCHMARK_SEED and not (asked.only or asked.limit):
        for path in write_results(plain):
            _say(f"wrote {path}")
    return 0


def show(arguments: Sequence[str]) -> int:
    """Write the log of one case to standard output, and its truth to standard error."""
    parser = argparse.ArgumentParser(prog="python -m bench.quality show")
    parser.add_argument("origin", choices=[origin.value for origin in Origin])
    parser.add_argument("family")
    parser.add_argument("seed", type=_at_least(0))
    parser.add_argument("tier", nargs="?", choices=[tier.value for tier in Tier], default=None)
    asked = parser.parse_args(arguments)
    try:
        spec = find_spec(Origin(asked.origin), asked.family, asked.seed)
    except ValueError as error:
        parser.error(str(error))
    recording = recorded(spec)
    tier = Tier(asked.tier or spec.tiers[-1])
    if tier not in recording.truths:
        parser.error(f"tier must be one of {', '.join(recording.truths)}, got {asked.tier!r}")
    print(recording.truths[tier], file=sys.stderr)
    lines = recording.lines if len(spec.tiers) == 1 else cut(recording.lines, tier)
    sys.stdout.buffer.write(b"\n".join([*lines, b""]))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.quality",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--full", action="store_true", help="hours instead of minutes")
    parser.add_argument("--processes", type=_at_least(1), default=2, help="cores to use (%(default)s)")
    of_seeds = f"first seed (%(default)s); below {FIRST_BENCHMARK_SEED}, for tuning, figures are only printed"
    parser.add_argument("--seeds-from", type=_at_least(0), default=NEXT_SEED, help=of_seeds)
    parser.add_argument("--recorded", type=Path, default=None, help="folder of recorded healthy curves (csv)")
    parser.add_argument("--without-peers", action="store_true", help="ask no other tool")
    parser.add_argument(
        "--only", default="", help="families whose name begins so; the figures are only printed"
    )
    parser.add_argument("--record", action="store_true", help="only make the logs, and ask the other tools")
    few = "only so many of the tasks; the figures are only printed"
    parser.add_argument("--limit", type=_at_least(1), default=None, help=few)
    shares = "one of so many parts, as 2/8, into the cache; nothing is written"
    parser.add_argument("--part", type=_part, default=WHOLE, help=shares)
    parser.add_argument("--failures", type=Path, default=None, help="folder for lists of what went wrong")
    return parser


def _part(text: str) -> tuple[int, int]:
    """Reads which of how many parts, and says the rule where there is no such part."""
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise argparse.ArgumentTypeError(f"must be one of so many parts, as 2/8, got {text!r}")
    return int(number), int(count)


def _at_least(least: int) -> Callable[[str], int]:
    """Reads a number, and says the rule where it is too small."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(f"must be a whole number >= {least}, got {text!r}")
        return value

    return read


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
