"""What of a delivery is still to be told when its turn has come: mutes and people were there in between."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select

from ..mutes import muted_now
from ..tables import incidents
from .config import ChannelConfig
from .dispatch import Delivery
from .telling import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Sifted:
    """The alerts to send; without any, until when a mute holds them back, or why there are none."""

    alerts: tuple[Mapping[str, Any], ...]
    muted_until: float | None = None
    why: str = ""


def sift(db: Connection, settings: ChannelConfig, delivery: Delivery, now: float) -> Sifted:
    """Leave out what nobody wants to hear any more."""
    kept, until, why = [], list[float](), ""
    for alert in delivery.alerts:
        if alert["event"] == Event.TEST:
            kept.append(alert)
            continue
        if not alert["is_firing"] and not settings.tells_resolved:
            why = "the channel does not hear of ends"
            continue
        mute = muted_now(db, alert["incident"], now) if alert["is_firing"] else None
        if mute is not None:
            until.append(mute.until)
        elif told_why := _why_not(db, alert):
            why = told_why
        else:
            kept.append(alert)
    if kept or not until:
        return Sifted(alerts=tuple(kept), why=why)
    return Sifted(alerts=(), muted_until=min(until))


def _why_not(db: Connection, alert: Mapping[str, Any]) -> str:
    """Why an alert is of no use any more; empty if it is."""
    row = db.execute(
        select(incidents.c.state, incidents.c.is_withdrawn, incidents.c.certainty).where(
            incidents.c.id == alert["incident"]
        )
    ).first()
    if row is None or not alert["is_firing"]:
        return ""  # the store forgot it, or it is over: telling once too often is the lesser fault
    if alert["event"] == Event.OPENED and row.state == "acknowledged":
        return "somebody acknowledged it before it was told"
    if alert["event"] == Event.REMINDER and (
        row.is_withdrawn or row.certainty == "recovered" or row.state not in ("open", "muted")
    ):
        return "it needs nobody any more"
    return ""
