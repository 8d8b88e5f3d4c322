"""Telemetry from the spool behind the `Source` protocol: the HTTP bodies of a service without Kafka.

Offsets are the spool's sequence numbers; the stored ones are ours, as with Kafka.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace

from .blocks import RecordBatch, Rejected
from .columns import batch_from_records
from .decode import Decoder, RawMessage
from .errors import SourceUnavailable, SpoolFull, SpoolTaken
from .source import ClaimParts
from .spool import Spool, SpoolUsage

log = logging.getLogger(__name__)

PART = "spool:0"
_MAX_ROWS = 2000
"""Bodies of one poll, as many as messages of one from Kafka."""
_MAX_BYTES = 16 << 20
"""Bytes of one poll: about 60 000 records, half a second of work."""
_LOOK_S = 0.02
"""Between two looks for news: one costs microseconds, and nobody notices 20 ms."""


class SpoolSource:
    """Hands out what is in the spool from where ``claim`` says, oldest where it does not.

    All calls belong to one thread. Closing it leaves the spool open.
    """

    def __init__(self, spool: Spool, decoder: Decoder, claim: ClaimParts) -> None:
        self._spool = spool
        self._decoder = decoder
        self._claim = claim
        self._is_claimed = False
        self._is_disowned = False
        self._rejected: list[Rejected] = []
        self._next = 0

    def poll(self, timeout_s: float) -> list[RecordBatch]:
        """The next bodies as one batch; empty when none came in time.

        Raises:
            SourceUnavailable: another process holds the file for too long; the next poll goes on.
            SpoolUnusable: the file is damaged.
            SpoolTaken: another worker reads it now.
        """
        if self._is_disowned:
            raise SpoolTaken("another worker reads this spool now; stop one of them")
        if not self._is_claimed:
            self._take_over()
        rejected, self._rejected = self._rejected, []
        if rejected:
            return [replace(batch_from_records([], rejected), origins=frozenset())]
        give_up_s = time.monotonic() + timeout_s
        while True:
            batches = self._read()
            if batches or time.monotonic() >= give_up_s:
                return batches
            time.sleep(min(_LOOK_S, max(0.0, give_up_s - time.monotonic())))

    def position(self) -> Mapping[str, int]:
        """The sequence number after the last body handed out."""
        return {PART: self._next} if self._is_claimed else {}

    def disown(self) -> None:
        """Hand out nothing any more: nobody will assign the spool anew."""
        self._is_disowned = True

    @property
    def is_exhausted(self) -> bool:
        """Never: a spool can always grow."""
        return False

    def lag_bodies(self) -> int:
        """Bodies that are not yet handed out."""
        return max(0, self._spool.next_seq() - self._next)

    def prune(self, before_seq: int) -> int:
        """Let go of the bodies below ``before_seq``, which a checkpoint covers; gives how many went.

        One that finds the file locked does nothing: the next checkpoint prunes more.
        """
        try:
            return self._spool.prune(before_seq)
        except SpoolFull as error:
            log.warning("spool not pruned", extra={"reason": str(error)})
            return 0

    def close(self) -> None:
        """Let go of nothing: the spool belongs to who opened it."""

    def _take_over(self) -> None:
        try:
            usage = self._spool.usage()  # before the claim, which says only once where to go on
        except SpoolFull as error:
            raise SourceUnavailable(str(error)) from error
        positions = self._claim(frozenset([PART])) or {}
        self._rejected = _missing(positions.get(PART), usage)
        self._next = usage.first_seq if self._rejected else positions.get(PART, usage.first_seq)
        self._is_claimed = True
        for one in self._rejected:
            log.warning("bodies are missing from the spool", extra={"reason": f"{one.rule}, got {one.value}"})

    def _read(self) -> list[RecordBatch]:
        try:
            if self._spool.next_seq() <= self._next:
                return []
            bodies = self._spool.read(self._next, _MAX_ROWS, _MAX_BYTES)
        except SpoolFull as error:
            raise SourceUnavailable(str(error)) from error
        messages = [RawMessage(PART, one.seq, one.body, one.content_type) for one in bodies]
        batches = self._decoder.decode_each(messages)
        self._next = bodies[-1].seq + 1
        return batches


def _missing(at: int | None, usage: SpoolUsage) -> list[Rejected]:
    """What lies between the stored offset and what the spool has: said, never passed over in silence."""
    if at is None or usage.first_seq <= at <= usage.next_seq:
        return []
    if at > usage.next_seq:
        rule = "must be in the spool, which was replaced and is read from its start"
        return [Rejected("message", rule, f"offset {at} of {usage.next_seq}", True, PART, at)]
    rule = "must be in the spool, of which it was pruned"
    return [Rejected("message", rule, f"offsets {at} to {usage.first_seq - 1}", True, PART, at)]
