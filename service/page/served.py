"""What of a view is in the document itself, before any script: the fleet as a list, a run with its curve.

It is read with scripts off too. A script that starts puts the live view in its place.
"""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request

from service.api.context import Context
from service.api.guards import TokenScope
from service.html_markup import Markup

from .served_fleet import FleetFilter, fleet_part
from .served_run import incident_part, run_part_of


@dataclass(frozen=True, slots=True)
class Served:
    """A view as text: its title and its markup."""

    title: str
    body: Markup


def serve_view(
    request: Request,
    context: Context,
    *,
    view: str | None,
    run: str | None,
    incident: str | None,
    wanted: FleetFilter,
) -> Served | None:
    """The view that an address names; None for one that needs scripts, and for who may not read."""
    grant = request.scope["state"]["grant"]
    if grant is None or TokenScope.READ not in grant.scopes:
        return None
    if incident is not None:
        return _named(incident_part(context, incident), "incident")
    if run is not None and view is None:
        return _named(run_part_of(context, run), "run")
    if run is None and view is None:
        return Served("firstfault", fleet_part(context, wanted))
    return None


def _named(found: tuple[str, Markup] | None, what: str) -> Served:
    if found is None:
        from service.html_cards import card
        from service.html_markup import tag

        words = tag("p", f"There is no such {what}. ", tag("a", "All runs", href="/"))
        return Served("firstfault", card("Not here", words))
    name, body = found
    return Served(f"{name} – firstfault", body)
