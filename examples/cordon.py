# SPDX-License-Identifier: Apache-2.0
"""Cordon the host that firstfault accuses, and let it back when the incident is withdrawn.

    python examples/cordon.py --kafka broker:9092                # only says what it would do
    python examples/cordon.py --kafka broker:9092 --execute      # runs kubectl

Reads firstfault.verdicts from its beginning: the topic is compacted, and holds one message for each incident.
What was cordoned stands in a file, since a host is let back only if it was this program that took it out, and
no other incident accuses it. It acts on confirmed incidents of one host that is a suspect by itself; of ranks
that cannot be told apart a person decides.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
"""Host names come out of telemetry, and go on a command line: nothing else is taken for one."""
_LABELS = ("silent_drift", "nan")
"""Faults that a host can be the cause of; an explosion is mostly the learning rate."""


class Cordons:
    """Which hosts are out, and for which incidents."""

    def __init__(self, path: Path, *, is_executing: bool) -> None:
        self._path, self._is_executing = path, is_executing
        self._held: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
        """Host by incident."""

    def take(self, incident_id: str, host: str | None) -> None:
        """An incident accuses this host now, or none."""
        before = self._held.pop(incident_id, None)
        if host is not None:
            if host not in self._held.values() and host != before:
                self._run("cordon", host)
            self._held[incident_id] = host
        if before is not None and before != host and before not in self._held.values():
            self._run("uncordon", before)
        # Written after the act: a crash in between repeats it, and cordoning twice is cordoning once.
        self._path.write_text(json.dumps(self._held))

    def _run(self, verb: str, host: str) -> None:
        command = ["kubectl", verb, host]
        print(shlex.join(command), flush=True)
        if self._is_executing:
            subprocess.run(command, check=True)


def accused(verdict: Mapping[str, Any], incident_id: str, *, min_confidence: float) -> str | None:
    """The one host that an incident accuses with enough confidence; None if there is none."""
    found = [one for one in verdict["incidents"] if one["id"] == incident_id]
    if not found or found[0]["certainty"] != "confirmed" or found[0]["label"] not in _LABELS:
        return None
    (incident,) = found
    first = incident["first"]
    hardware = [one["confidence"] for one in incident["causes"] if one["kind"] == "hardware"]
    hosts = {one["host"] for one in first["suspects"]}
    if first["tie"] or len(hosts) != 1 or max(hardware, default=0.0) < min_confidence:
        return None
    (host,) = hosts
    return host if host is not None and _HOST.fullmatch(host) else None


def main() -> int:
    """Read verdicts for ever, or to the end of what is there with ``--once``."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kafka", required=True, metavar="HOST:PORT")
    parser.add_argument("--topic", default="firstfault.verdicts")
    parser.add_argument("--state", type=Path, default=Path("cordons.json"), help="where it keeps what is out")
    parser.add_argument("--min-confidence", type=float, default=0.5, help="that the hardware is the cause")
    parser.add_argument("--execute", action="store_true", help="run the commands, and not only print them")
    parser.add_argument("--once", action="store_true", help="end when everything there is was read")
    given = parser.parse_args()
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        given.topic,
        bootstrap_servers=given.kafka.split(","),
        auto_offset_reset="earliest",
        enable_auto_commit=False,  # no group: at each start all is read again, and what is out is known
        consumer_timeout_ms=3000 if given.once else float("inf"),
    )
    cordons = Cordons(given.state, is_executing=given.execute)
    for message in consumer:
        headers = dict(message.headers)
        incident_id = message.key.decode()
        if headers.get("schema") != b"1":
            print(f"skipped a message of schema {headers.get('schema')!r}", file=sys.stderr)
        elif headers["incident-state"] == b"withdrawn":
            cordons.take(incident_id, None)
        else:
            verdict = json.loads(message.value)
            cordons.take(incident_id, accused(verdict, incident_id, min_confidence=given.min_confidence))
    consumer.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
