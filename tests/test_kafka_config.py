"""Settings of the Kafka source that cannot be are refused by name."""

from __future__ import annotations

import pytest

from ingest.kafka_config import KafkaSourceConfig


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bootstrap": ()}, "bootstrap must name at least one host:port, got none"),
        ({"max_batch_bytes": 0}, "max_batch_bytes must be >= 1, got 0"),
        ({"session_timeout_s": 0.5}, r"session_timeout_s must be >= 1\.0, got 0\.5"),
        ({"watchdog_s": 19.0}, r"watchdog_s must be >= 4 x connect_timeout_s, got 19\.0"),
    ],
)
def test_a_setting_out_of_range_is_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        KafkaSourceConfig(**settings)  # type: ignore[arg-type]  # any field, to see it refused
