"""What stands beside a message to Kafka, so that its value stays as it is."""

from __future__ import annotations

from ingest.blocks import Rejected

Header = tuple[str, bytes]

VERDICT_VERSION = b"1"
"""Of the headers and of the verdict's ``schema``."""


def verdict_headers(incident_id: str, verdict: bytes) -> list[Header]:
    """Which incident a verdict is published for, and whether that still stands in it.

    The value is the run's canonical verdict to the byte, and cannot say it: an incident that was withdrawn is
    simply not in it. Canonical bytes have one form, in which the id stands only where the incident does.

    >>> dict(verdict_headers("a1", b'{"incidents":[{"id":"a1"}]}'))["incident-state"]
    b'stands'
    """
    stands = b'"id":"' + incident_id.encode() + b'"' in verdict
    return [
        ("content-type", b"application/json"),
        ("schema", VERDICT_VERSION),
        ("incident-id", incident_id.encode()),
        ("incident-state", b"stands" if stands else b"withdrawn"),
    ]


def dead_letter_headers(rejected: Rejected) -> list[Header]:
    """Why a line was rejected and where it came from.

    >>> [name for name, _ in dead_letter_headers(Rejected("rank", "must be >= 0", "-1", True, "t:0", 7))]
    ['reason', 'field', 'rule', 'source_topic', 'source_partition', 'source_offset']
    """
    topic, _, partition = rejected.source.rpartition(":")
    texts = {
        "reason": f"{rejected.field} {rejected.rule}, got {rejected.value}",
        "field": rejected.field,
        "rule": rejected.rule,
        "source_topic": topic,
        "source_partition": partition,
        "source_offset": str(rejected.offset),
    }
    return [(name, text.encode(errors="replace")) for name, text in texts.items()]
