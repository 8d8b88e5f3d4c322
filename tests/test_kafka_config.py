"""Settings of the Kafka source that cannot be are refused by name."""

from __future__ import annotations

import pytest

from ingest.decode import Decoder
from ingest.errors import UnreadableInput
from ingest.kafka_source import KafkaSource, KafkaSourceConfig


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


def test_a_client_setting_that_kafka_python_does_not_know_is_named() -> None:
    config = KafkaSourceConfig(client={"security_protocol": "SSL", "sasl_mechanizm": "PLAIN"})
    with pytest.raises(UnreadableInput, match=r"kafka\.client\.sasl_mechanizm is no setting"):
        KafkaSource(config, Decoder(), lambda _parts: {})
