"""Where a run went wrong, in the two cells that it takes in a table of runs."""

from __future__ import annotations

from .rank_words import rank_words
from .sentence import Verdict, root_incident, subject
from .sufficiency import has_confirmed_incident


def place_words(verdict: Verdict) -> tuple[str, str]:
    """Ranks and iteration of the root of a run with a confirmed incident; empty without one."""
    root = root_incident(verdict) if has_confirmed_incident(verdict) else None
    if root is None:
        return "", ""
    first = root["first"]
    if first.get("ranks"):
        ranks = rank_words(first["ranks"], int(first.get("rank_count") or 0), limit=3)
    else:
        # without ranks it is a run of which one rank reports, or all ranks alike
        ranks = "-" if subject(root, verdict)[0] == "The run" else "all"
    return ranks, str(first["iteration"])
