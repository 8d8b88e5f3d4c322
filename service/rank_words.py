"""Ranks in words: few of them by number, many as ranges."""

from __future__ import annotations

from collections.abc import Sequence


def rank_words(ranks: Sequence[int], count: int, limit: int = 6) -> str:
    """Ranks as ranges: ``0-3, 7 and 9``; at most ``limit`` ranges, then how many more.

    >>> rank_words([0, 1, 2, 3, 7, 9], 6)
    '0-3, 7 and 9'
    """
    spans: list[tuple[int, int]] = []
    for rank in ranks:
        if spans and rank == spans[-1][1] + 1:
            spans[-1] = (spans[-1][0], rank)
        else:
            spans.append((rank, rank))
    shown = spans[:limit]
    words = [
        str(a) if a == b else f"{a} and {b}" if len(spans) == 1 and b == a + 1 else f"{a}-{b}"
        for a, b in shown
    ]
    hidden = max(count, len(ranks)) - sum(b - a + 1 for a, b in shown)
    if hidden > 0:
        words.append(f"{hidden} more")
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
