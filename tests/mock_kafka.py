"""librdkafka's mock cluster out of the confluent-kafka wheel: a broker that stores what a real one refuses.

A real broker checks batches when they are produced, so damaged ones need this. It knows old protocol
versions only, hence `CLIENT`; groups have one member.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from types import TracebackType
from typing import Any

CLIENT = {"api_version": (2, 1)}
"""Settings that kafka-python needs to speak to it."""


class MockKafka:
    """One mock broker on the loopback address, as a context manager."""

    def __init__(self) -> None:
        self._library = _load()
        error = ctypes.create_string_buffer(512)
        conf = ctypes.c_void_p(self._library.rd_kafka_conf_new())
        # 0: a producer handle, which the cluster lives in
        self._handle = ctypes.c_void_p(self._library.rd_kafka_new(0, conf, error, ctypes.c_size_t(512)))
        self._cluster = ctypes.c_void_p(self._library.rd_kafka_mock_cluster_new(self._handle, 1))
        # a group of one need not wait 3 s for others
        self._library.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, 0)
        self.address: str = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def create_topic(self, name: str, partitions: int = 1) -> str:
        """Create a topic; gives its name."""
        self._library.rd_kafka_mock_topic_create(self._cluster, name.encode(), partitions, 1)
        return name

    def __enter__(self) -> MockKafka:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._handle)


def _load() -> Any:
    import confluent_kafka

    site = Path(confluent_kafka.__file__).parent.parent
    (path,) = (site / "confluent_kafka.libs").glob("librdkafka-*.so*")
    library = ctypes.CDLL(str(path))
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
        getattr(library, name).restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    return library
