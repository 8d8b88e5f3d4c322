"""Whether a host is accused in more runs than chance explains.

Suppose that a fault strikes any host of its run alike. Then a host is accused alone in a run with the
probability s / H, for s hosts accused alone among its H, and the number of runs that accuse it follows a
Poisson binomial distribution over the runs it was seen in. Its upper tail, times the number of hosts compared
(Bonferroni, since one looks at the worst of them all), is the p-value. Several incidents of one run count
once: they are hardly independent. A run whose telemetry names no hosts tells nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from .host_history import accused_hosts
from .tables import incidents
from .triage_tables import run_hosts

SIGNIFICANT = 0.01
"""One fleet of a hundred without a bad host shows one that seems so: who drains hosts by it wants it rare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chance:
    """How likely so many runs accuse a host alone where faults strike all hosts alike."""

    p_value: float
    """After the correction for all hosts compared."""
    accused: int
    """Runs that accuse it alone."""
    expected: float
    """As many would be chance."""
    runs: int
    """Runs that accuse any host alone and were seen on this one."""
    hosts_compared: int

    @property
    def is_more(self) -> bool:
        """Whether it is more than chance."""
        return self.p_value < SIGNIFICANT


def chances(db: Connection, hosts: Sequence[str]) -> dict[str, Chance]:
    """How surprising the record of each host is; those of which no run tells are left out."""
    alone = accused_hosts(incidents.c.state != "false_alarm", incidents.c.suspect_hosts == 1).subquery()
    hosts_alone = func.count(alone.c.host.distinct()).label("hosts")
    accusing = select(alone.c.run_id, hosts_alone).group_by(alone.c.run_id)
    struck = {row.run_id: row.hosts for row in db.execute(accusing)}
    named = run_hosts.c.run_id.in_(select(alone.c.run_id))
    sizes = select(run_hosts.c.run_id, func.count()).where(named).group_by(run_hosts.c.run_id)
    chance = {row[0]: min(1.0, struck[row[0]] / row[1]) for row in db.execute(sizes)}
    compared = db.execute(select(func.count(run_hosts.c.host.distinct())).where(named)).scalar_one()
    seen: dict[str, list[str]] = {}
    pairs = select(run_hosts.c.host, run_hosts.c.run_id).where(named, run_hosts.c.host.in_(hosts))
    for host, run_id in db.execute(pairs):
        seen.setdefault(host, []).append(run_id)
    against = select(alone.c.host, alone.c.run_id).where(alone.c.host.in_(hosts)).distinct()
    accused: dict[str, set[str]] = {}
    for host, run_id in db.execute(against):
        accused.setdefault(host, set()).add(run_id)
    return {
        host: _chance([chance[one] for one in runs], len(accused.get(host, set()) & set(runs)), compared)
        for host, runs in seen.items()
    }


def upper_tail(chances_R: Sequence[float], least: int) -> float:
    """The probability of at least ``least`` successes in trials of these chances.

    >>> round(upper_tail([0.5, 0.5, 0.5], 2), 6), upper_tail([0.25], 0)
    (0.5, 1.0)
    """
    if least <= 0:
        return 1.0
    below = [1.0, *([0.0] * (least - 1))]  # the probability of each number under ``least`` so far
    reached = 0.0
    for chance in chances_R:
        reached += below[-1] * chance
        for at in range(least - 1, 0, -1):
            below[at] = below[at] * (1.0 - chance) + below[at - 1] * chance
        below[0] *= 1.0 - chance
    return min(1.0, reached)


def _chance(chances_R: Sequence[float], accused: int, compared: int) -> Chance:
    tail = upper_tail(chances_R, accused)
    return Chance(
        p_value=min(1.0, tail * max(1, compared)),
        accused=accused,
        expected=sum(chances_R),
        runs=len(chances_R),
        hosts_compared=compared,
    )
