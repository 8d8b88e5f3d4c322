"""Sends what waits in the outbox: a thread for each channel, in every worker.

The sender lives with the worker and not with the API. The worker's own commit, of which nearly every message
comes, wakes it without a look at the store; a worker is part of every deployment, there may be many, and the
lease on each delivery lets exactly one send it. The process that faces the web needs no way out, no secret.
Messages that the API puts out (somebody resolved an incident) are found at the next poll.
"""

from __future__ import annotations

import logging
import random
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from ..crash_points import CrashPoint, reach
from ..database import Database
from ..errors import StoreError
from . import dispatch
from .apprise_parent import START_S
from .carriers import Letter, Outcome, send
from .config import AlertsConfig, ChannelKind
from .dispatch import Delivery, Lease
from .outbox import DeliveryKind, DeliveryState
from .sifting import sift
from .standing import tell_standing

log = logging.getLogger(__name__)

_PRUNE_EVERY_S = 600.0
_STORE_RETRY_S = 1.0
_CLOSE_S = 1.0
"""How long a stopping worker waits for a message on the way; one that is cut off is sent again."""


class Sender:
    """Threads that send deliveries; `wake` when something was put out."""

    def __init__(
        self,
        database: Database,
        config: AlertsConfig,
        base_url: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._lines = [
            _Line(_Desk(database, config, base_url.rstrip("/"), clock), channel)
            for channel in config.channels
        ]

    def start(self) -> None:
        """Begin to send."""
        for line in self._lines:
            line.thread.start()

    def wake(self) -> None:
        """Something was put out just now."""
        for line in self._lines:
            line.changed.set()

    def close(self) -> None:
        """End the threads; a message that is on the way is waited for a moment."""
        for line in self._lines:
            line.is_closing = True
            line.changed.set()
        until_s = time.monotonic() + _CLOSE_S
        for line in self._lines:
            if line.thread.ident is not None:
                line.thread.join(max(0.0, until_s - time.monotonic()))


@dataclass(frozen=True, slots=True)
class _Desk:
    """What all lines share."""

    database: Database
    config: AlertsConfig
    base_url: str
    clock: Callable[[], float]

    def lease(self, kind: ChannelKind) -> Lease:
        """A claim outlasts the longest try, to which loading apprise belongs."""
        seconds = 2.0 * self.config.timeout_s + (START_S if kind is ChannelKind.APPRISE else 1.0)
        return Lease(owner=uuid.uuid4().hex, seconds=seconds, give_up_after_s=self.config.give_up_after_s)


class _Line:
    """One channel, and the thread that serves it."""

    def __init__(self, desk: _Desk, channel: str) -> None:
        self._desk, self._channel = desk, channel
        self._settings = desk.config.channels[channel]
        self._lease = desk.lease(self._settings.kind)
        self._pruned_at_s = time.monotonic()
        self._is_failing = False
        self.changed = threading.Event()
        self.is_closing = False
        self.thread = threading.Thread(target=self._run, name=f"alerts-{channel}", daemon=True)

    def _run(self) -> None:
        while not self.is_closing:
            self.changed.clear()
            try:
                while not self.is_closing and self._send_next():
                    pass
                self._prune()
            except StoreError as error:
                log.warning("the outbox cannot be used; waiting", extra={"reason": str(error)})
                self.changed.wait(_STORE_RETRY_S)
            except Exception:  # the edge of this thread: a bug in one message must not silence the channel
                log.exception("a message could not be handled", extra={"channel": self._channel})
                self.changed.wait(_STORE_RETRY_S)
            if not self.is_closing:
                self.changed.wait(self._desk.config.poll_s)

    def _send_next(self) -> bool:
        """Send one delivery; False if none is due."""
        desk, now = self._desk, self._desk.clock()
        with desk.database.read() as db:
            if not dispatch.has_due(db, self._channel, now):
                return False
        with desk.database.write() as db:
            delivery = dispatch.claim_next(db, self._channel, self._lease, now)
        if delivery is None:
            return False
        reach(CrashPoint.ALERT_CLAIMED)
        letter = Letter(
            id=delivery.id,
            channel=self._channel,
            settings=self._settings,
            config=desk.config,
            base_url=desk.base_url,
            made_at=delivery.created_at,
            now=now,
        )
        if self._settings.kind is ChannelKind.ALERTMANAGER:
            self._settle(delivery, tell_standing(desk.database, letter, delivery))
        else:
            self._send_one(letter, delivery)
        return True

    def _send_one(self, letter: Letter, delivery: Delivery) -> None:
        desk = self._desk
        with desk.database.read() as db:
            found = sift(db, self._settings, delivery, letter.now)
        if found.alerts:
            self._settle(delivery, send(letter, found.alerts))
            return
        with desk.database.write() as db:
            if found.muted_until is not None:
                due_at = min(found.muted_until, letter.now + _MUTED_LOOK_S)
                dispatch.untried(db, delivery, due_at, "muted")
            else:
                dispatch.finish(db, delivery, DeliveryState.DROPPED, letter.now, found.why)

    def _settle(self, delivery: Delivery, outcome: Outcome) -> None:
        """Keep what became of a try."""
        reach(CrashPoint.ALERT_SENT)
        desk, now = self._desk, self._desk.clock()
        is_over = outcome.is_final or now >= delivery.give_up_at
        with desk.database.write() as db:
            if outcome.is_sent:
                result = "sent"
                if delivery.kind is DeliveryKind.REFRESH:
                    dispatch.end_refresh_if_over(db, delivery, now + desk.config.resend_every_s)
                else:
                    dispatch.finish(db, delivery, DeliveryState.SENT, now, outcome.detail)
            elif is_over and delivery.kind is not DeliveryKind.REFRESH:
                result = "given_up"
                dispatch.finish(db, delivery, DeliveryState.GIVEN_UP, now, outcome.detail)
            else:
                result = "failed"
                due_at = now + self._wait_s(delivery.attempts, outcome.retry_after_s)
                dispatch.put_off(db, delivery, due_at, outcome.detail)
            dispatch.count(db, self._channel, result, now, outcome.detail)
        self._tell(result, outcome.detail)

    def _wait_s(self, attempts: int, asked_s: float) -> float:
        config = self._desk.config
        longest_s = min(config.retry_max_s, config.retry_first_s * 2.0 ** min(attempts - 1, 30))
        # Half of it at random: many senders that failed together must not all come back together.
        return max(asked_s, longest_s * random.uniform(0.5, 1.0))

    def _tell(self, result: str, detail: str) -> None:
        about = {"channel": self._channel, "reason": detail}
        if result == "given_up":
            log.error("an alert was given up", extra=about)
        elif result == "failed" and not self._is_failing:
            log.warning("an alert was not taken; trying again", extra=about)
        elif result == "sent" and self._is_failing:
            log.info("alerts are taken again", extra=about)
        self._is_failing = result != "sent"

    def _prune(self) -> None:
        if time.monotonic() - self._pruned_at_s >= _PRUNE_EVERY_S:
            self._pruned_at_s = time.monotonic()
            with self._desk.database.write() as db:
                config = self._desk.config
                dispatch.prune(db, self._desk.clock(), config.keep_s, config.give_up_after_s)


_MUTED_LOOK_S = 30.0
"""How often a message that a mute holds back is looked at: a mute may be taken away before its end."""
