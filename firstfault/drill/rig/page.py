"""The page of all faults, from the catalogue: `docs/faults.md`.

python -m firstfault.drill.rig.page > docs/faults.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from .catalogue import CATALOGUE
from .entries import Entry
from .signs import ELSEWHERE, SIGNS
from .spec import Kind, LayoutName

_HEAD = """# Faults

Every fault that `firstfault drill --kind` can inject, from the catalogue by which it is drawn. Single
flips in memory at rest are drawn a fifth as often as those of computed values: under ECC they are rare."""
_SITES = """## Sites

Where in an iteration a fault acts, and by what it is told from the others: what differs from the golden
twin (the same run without the fault) in the first iteration in which anything does, in a plain data
parallel job that reports everything in every iteration. Such a job passes no messages and gathers no
parameters: the last two sites are empty. A fault before the reduction makes all replicas
wrong alike, one behind it makes one replica differ. What strikes all ranks alike shows on all of them. A
test holds every kind at every site to this table."""
_KINDS = """## Kinds

*Size* is the relative error or the factor, where a kind has one; *rate* the share of the passes that it
strikes. A fault that lasts strikes the canary and the recomputation too."""


def page() -> str:
    """The whole page."""
    parts = (_HEAD, _SITES, "\n".join(_site_rows()), _KINDS, "\n".join(_kind_rows()))
    return "\n\n".join(parts) + "\n"


def _site_rows() -> Iterator[str]:
    yield "| site | is | first wrong on the struck rank alone | on all ranks | still right |"
    yield "| --- | --- | --- | --- | --- |"
    for site, signs in SIGNS.items():
        own, everywhere, clean = map(_names, (signs.own, signs.everywhere, signs.clean))
        yield f"| `{site}` | {signs.where} | {own} | {everywhere} | {clean} |"
    for site, where in ELSEWHERE.items():
        yield f"| `{site}` | {where} | | | |"


def _kind_rows() -> Iterator[str]:
    yield "| kind | is | sites | strikes | lasts | size | rate | causes | layouts |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for kind, entry in CATALOGUE.items():
        yield " | ".join((f"| `{kind}`", entry.summary, _names(entry.sites), *_facts(kind, entry))) + " |"


def _facts(kind: Kind, entry: Entry) -> Iterator[str]:
    yield "one rank" if entry.is_of_one_rank else "all ranks"
    if kind in (Kind.CORRUPT_RESTORE, Kind.INCOMPLETE_RESTORE):
        yield "one resume"
    elif entry.lasts == 1:
        yield "once"
    else:
        yield "to the end" if entry.lasts is None else f"{entry.lasts} iterations"
    yield _range(entry.magnitudes)
    yield _range(entry.rates)
    yield ", ".join(cause.replace("_", " ") for cause in entry.causes)
    is_everywhere = len(entry.layouts) == len(LayoutName)
    yield "all" if is_everywhere else _names(entry.layouts)


def _range(bounds: tuple[float, float]) -> str:
    low, high = bounds
    return "" if low == high else f"{low:g} to {high:g}"


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    sys.stdout.write(page())
