"""What a preflight says in the end: a row for each host, and a sentence."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from firstfault.preflight.running import Crew

_MAX_ROWS = 64
"""Hosts of the table: those that differ come first; the JSON has all."""


def host_table(
    crew: Crew, body: Mapping[str, Any], rounds: Counter[int], rounds_s: Counter[int]
) -> list[str]:
    """A row for each host: its ranks, its pace, and what is said of it. Hosts that are named come first."""
    from .ink import clean, ink_for, table

    named: dict[int, str] = {}
    for incident in body["incidents"]:
        first = incident["first"]
        part = first["metric"].rpartition("/")[2]
        words = f"{part}, round {first['iteration']}, {incident['certainty']}"
        # A verdict lists no ranks where it is all of them, as is a rank alone.
        for rank in first["ranks"] or range(len(crew.hosts) == 1):
            named.setdefault(rank, words)
    ranks_of: dict[str, list[int]] = {}
    for rank, host in enumerate(crew.hosts):
        ranks_of.setdefault(host, []).append(rank)
    hosts = sorted(ranks_of, key=lambda host: (not named.keys() & set(ranks_of[host]), ranks_of[host][0]))
    same = "same as its peers" if len(crew.hosts) > 1 else "the same each time"
    rows = [["host", "ranks", "s a round", "result"]]
    for host in hosts[:_MAX_ROWS]:
        ranks = ranks_of[host]
        pace_s = max(rounds_s[rank] / max(rounds[rank], 1) for rank in ranks)
        odd = [f"rank {rank}: {named[rank]}" for rank in ranks if rank in named]
        rows.append([clean(host, 40), _span(ranks), f"{pace_s:.3g}", "; ".join(odd) or same])
    if len(hosts) > _MAX_ROWS:
        rows.append([f"{len(hosts) - _MAX_ROWS} more hosts", "", "", ""])
    return table(rows, ink_for(sys.stdout))


def _span(ranks: Sequence[int]) -> str:
    is_row = list(ranks) == list(range(ranks[0], ranks[-1] + 1))
    return f"{ranks[0]}-{ranks[-1]}" if is_row and len(ranks) > 1 else ",".join(map(str, ranks))


def is_not_deterministic(body: Mapping[str, Any]) -> bool:
    """Whether ranks disagreed with themselves so often that nothing was compared."""
    from detectors.repeat import NOT_DETERMINISTIC

    return any(note["kind"] == NOT_DETERMINISTIC for note in body["annotations"])


def last_words(body: Mapping[str, Any]) -> str:
    """The sentence at the end."""
    from .sentence import what_happened

    if is_not_deterministic(body) and not body["incidents"]:
        return "Not deterministic: most ranks disagree with themselves, so that nothing can be compared."
    return what_happened(body).replace(" up to iteration ", " up to round ")
