"""`firstfault doctor` and `firstfault config check`: what they look at, in order, and the exit status."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .config import Settings, load_settings, names_kafka
from .doctor.finding import Finding, State, ok, skipped
from .edge import Exit, tell


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorRequest:
    """What was asked for on the command line; None leaves it to the settings."""

    data: Path
    kafka: str | None = None
    config: Path | None = None
    as_json: bool = False


def run_doctor(request: DoctorRequest) -> int:
    """Look at everything, a line each as soon as it is known; 3 if anything fails.

    Raises:
        ConfigError: the settings cannot be.
    """
    given = {} if request.kafka is None else {"kafka.bootstrap": request.kafka}
    settings = load_settings(request.config, overrides=given)
    uses_kafka = request.kafka is not None or names_kafka(request.config)
    with _unheard("kafka"):
        return _tell(_all(settings, request, uses_kafka=uses_kafka), Exit.FAILED, as_json=request.as_json)


def run_check(config: Path | None, *, as_json: bool = False) -> int:
    """Look at the settings alone, nothing is connected to; 2 if anything in them cannot work.

    Raises:
        ConfigError: the settings cannot be.
    """
    return _tell(_settings(load_settings(config), config), Exit.UNUSABLE, as_json=as_json)


@contextmanager
def _unheard(library: str) -> Iterator[None]:
    """What a library logs of a failure is less than what is found here, and would stand between the lines."""
    logger = logging.getLogger(library)
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)


def _all(settings: Settings, request: DoctorRequest, *, uses_kafka: bool) -> Iterator[Finding]:
    from .doctor.channels import look_at_channels
    from .doctor.machine import look_at_clock, look_at_codecs, look_at_disk, look_at_store

    yield from _settings(settings, request.config)
    if uses_kafka:
        yield from _kafka(settings)
        yield from look_at_codecs(settings.kafka.max_batch_bytes)
    else:
        yield skipped("kafka", "no broker is named: telemetry comes over HTTP")
    yield from look_at_store(request.data, settings.store)
    yield from look_at_disk(request.data)
    yield from look_at_clock(settings.store)
    yield from look_at_channels(settings.alerts)


def _settings(settings: Settings, config: Path | None) -> Iterator[Finding]:
    from .doctor.channels import look_at_settings
    from .doctor.review import review

    found = list(review(settings))
    channels = settings.alerts.channels
    found += [one for name in channels if (one := look_at_settings(name, channels[name])) is not None]
    where = str(config) if config is not None else "no file, the environment and defaults"
    yield from found or [ok("settings", f"{where}: nothing is wrong with them")]


def _kafka(settings: Settings) -> Iterator[Finding]:
    from .doctor.endpoint import look_at
    from .doctor.topics import look_at_cluster

    kafka = settings.kafka
    reached = 0
    for address in kafka.bootstrap:
        found = list(look_at(address, kafka.client, kafka.connect_timeout_s))
        reached += all(one.state is not State.FAIL for one in found)
        yield from found
    if reached:
        yield from look_at_cluster(kafka)
    else:
        yield skipped("topic", "no address of Kafka can be used")


def _tell(findings: Iterable[Finding], if_wrong: Exit, *, as_json: bool) -> int:
    is_wrong = False
    for one in findings:
        is_wrong = is_wrong or one.state is State.FAIL
        tell(json.dumps(one.as_json(), ensure_ascii=True) if as_json else one.line())
    return if_wrong if is_wrong else Exit.HEALTHY
