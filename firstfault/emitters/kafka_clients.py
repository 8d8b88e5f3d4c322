"""Making kafka-python clients that leave nothing behind when the broker does not answer.

Free of kafka-python itself: the class of the client is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SENDER_END_S = 1.0
"""Wait for a producer's thread that was told to stop; it looks up from its sockets many times a second."""


def make_client(client_class: Any, settings: Mapping[str, object], shared: Mapping[str, object]) -> Any:
    """A consumer, producer or admin client.

    Of the ``shared`` settings, which one table of ours gives to all three classes, those are used that
    this class knows: each refuses the others. A constructor that cannot bootstrap keeps its thread and
    sockets for ever, one set per attempt, so the network client is made here and closed for it.

    Raises:
        kafka.errors.KafkaError: no bootstrap within ``bootstrap_timeout_ms``.
    """
    made: list[Any] = []
    make_network = client_class.DEFAULT_CONFIG["kafka_client"]

    def network(*args: Any, **settings: Any) -> Any:
        made.append(make_network(*args, **settings))
        return made[-1]

    known = {name: value for name, value in shared.items() if name in client_class.DEFAULT_CONFIG}
    try:
        return client_class(**{**settings, **known, "kafka_client": network})
    except BaseException:
        for client in made:
            client.close()
        raise


def close_now(producer: Any, wait_s: float = _SENDER_END_S) -> None:
    """Close a producer without waiting: whoever waits for a message of it is told that it failed.

    ``close`` begins with ``flush``, whose timeout is an error that leaves the producer open, with its
    threads (kafka-python 3.0.12), so that there must be nothing to flush.
    """
    producer.flush = lambda *_, **__: None
    sender = producer._sender
    producer.close(timeout=0)
    sender.join(wait_s)  # its sockets are closed as it ends
