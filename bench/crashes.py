"""How many kills a worker survives without a trace: law 5, counted.

    python -m bench.crashes [--kills 60] [--seed 0] [--kafka]

Over many seeds a worker is killed with SIGKILL, at named places and at random moments, while records come
in; then it may finish, and its store is compared byte for byte with that of a worker that was never killed.
With ``--kafka`` the records come from a real broker, else from the spool.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from ingest.spool import Spool
from service.crash_points import UNALERTED
from service.local_kafka import LocalKafka
from tests.crash_harness import (
    Kept,
    Setup,
    Tally,
    append_to_spool,
    finish,
    kill_over_and_over,
    mixed_lines,
    on_kafka,
    spooling,
)
from tests.kafka_builders import produce_keyed

LIVES = 10
"""Kills of one pass over the records."""


def main() -> None:
    """Print kills, where they struck, and what differed: nothing should."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kafka", action="store_true")
    asked = parser.parse_args()
    tally, differing, lines = Tally(), 0, mixed_lines()
    with tempfile.TemporaryDirectory() as folder:
        passes = _on_kafka(Path(folder), lines) if asked.kafka else _on_spool(Path(folder), lines)
        for seed, (setup, feed, end_of, never_killed) in enumerate(passes, asked.seed):
            kill_over_and_over(setup, feed, random.Random(seed), tally, UNALERTED)
            differing += finish(setup, end_of()) != never_killed
            if tally.kills >= asked.kills:
                break
    where = ", ".join(f"{count} {place}" for place, count in sorted(tally.at.items()))
    print(f"kills survived without a trace: {tally.kills} ({where})")
    print(f"stores that differ from that of a worker never killed: {differing}")
    sys.exit(differing > 0)


Pass = tuple[Setup, Callable[[], bool], Callable[[], int], Kept]


def _on_spool(folder: Path, lines: list[bytes]) -> Iterator[Pass]:
    whole = spooling(folder / "never-killed")
    append_to_spool(whole, lines)
    never_killed = finish(whole, _end(whole))
    for number in range(1_000_000):
        setup = spooling(folder / str(number))
        yield setup, _feeding(lines, _to_spool(setup)), _end_of(setup), never_killed


def _on_kafka(folder: Path, lines: list[bytes]) -> Iterator[Pass]:
    from kafka import KafkaAdminClient

    with LocalKafka(folder / "kafka") as broker:
        for number in range(1_000_000):
            topic = f"crashes-{number}"
            admin = KafkaAdminClient(bootstrap_servers=[broker.address])
            admin.create_topics({topic: {"num_partitions": 2}}, wait_for_metadata=True)
            # the never killed one reads a topic of its own: the same lines under the same keys
            admin.create_topics({f"{topic}-whole": {"num_partitions": 2}}, wait_for_metadata=True)
            admin.close()
            produce_keyed(broker.address, f"{topic}-whole", lines)
            whole = on_kafka(folder / f"whole-{number}", broker.address, f"{topic}-whole")
            never_killed = finish(whole, len(lines))
            setup = on_kafka(folder / str(number), broker.address, topic)
            yield setup, _feeding(lines, _to_topic(broker, topic)), lambda: len(lines), never_killed


def _to_spool(setup: Setup) -> Callable[[list[bytes]], None]:
    return lambda part: append_to_spool(setup, part)


def _to_topic(broker: LocalKafka, topic: str) -> Callable[[list[bytes]], None]:
    return lambda part: produce_keyed(broker.address, topic, part)


def _end_of(setup: Setup) -> Callable[[], int]:
    return lambda: _end(setup)


def _end(setup: Setup) -> int:
    spool = Spool(setup.data)
    end = spool.next_seq()
    spool.close()
    return end


def _feeding(lines: list[bytes], send: Callable[[list[bytes]], None]) -> Callable[[], bool]:
    """Sends the next part of the lines at each call; False once all were sent."""
    size = -(-len(lines) // LIVES)
    parts = iter([lines[at : at + size] for at in range(0, len(lines), size)])

    def feed() -> bool:
        part = next(parts, None)
        if part is not None:
            send(part)
        return part is not None

    return feed


if __name__ == "__main__":
    main()
