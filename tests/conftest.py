"""Fixtures that more than one test file needs: real servers, started once for the whole session."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from detectors import kernels
from service.kafka_jars import BrokerUnavailable
from service.local_kafka import LocalKafka
from service.store_config import StoreConfig

from .local_postgres import LocalPostgres, PostgresUnavailable

if TYPE_CHECKING:
    from .local_chromium import Chromium
    from .page_builders import Shown

NewTopic = Callable[[int], str]

# The same examples in every run, and no time limit of one example: machines are shared and slow at times.
settings.register_profile("firstfault", derandomize=True, deadline=None)
settings.load_profile("firstfault")


@pytest.fixture(autouse=True)
def choice() -> Iterator[None]:
    """How the process runs folds is as before each test: a worker in one must not decide for the next."""
    before = kernels._Choice.is_eager, kernels._Choice.is_held
    yield
    kernels._Choice.is_eager, kernels._Choice.is_held = before


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    """A running Apache Kafka; tests may restart it but leave it running."""
    kafka = LocalKafka(tmp_path_factory.mktemp("kafka"))
    try:
        kafka.start()
    except BrokerUnavailable as error:
        pytest.skip(f"no Kafka broker: {error}")
    yield kafka
    kafka.stop()


@pytest.fixture(scope="session")
def topic_numbers() -> Iterator[int]:
    return itertools.count()


@pytest.fixture
def new_topic(broker: LocalKafka, topic_numbers: Iterator[int]) -> NewTopic:
    """Creates a topic of its own with as many partitions as asked for; gives its name."""
    from kafka import KafkaAdminClient

    def create(partitions: int) -> str:
        name = f"topic-{next(topic_numbers)}"
        admin = KafkaAdminClient(bootstrap_servers=[broker.address])
        admin.create_topics({name: {"num_partitions": partitions}}, wait_for_metadata=True)
        admin.close()
        return name

    return create


@pytest.fixture(scope="session")
def postgres() -> Iterator[LocalPostgres]:
    """A running PostgreSQL; each test takes a database of its own, see `new_database`."""
    server = LocalPostgres()
    try:
        server.start()
    except PostgresUnavailable as error:
        server.stop()
        pytest.skip(f"no PostgreSQL: {error}")
    yield server
    server.stop()


@pytest.fixture
def new_database(postgres: LocalPostgres, topic_numbers: Iterator[int]) -> str:
    """Address of an empty PostgreSQL database."""
    import psycopg

    name = f"store_{next(topic_numbers)}"
    with psycopg.connect(postgres.url(), autocommit=True) as db:
        db.execute(f"CREATE DATABASE {name}")
    return postgres.url(name)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def store_config(request: pytest.FixtureRequest) -> StoreConfig:
    """Settings of an empty store in each kind of database."""
    return StoreConfig(url=request.getfixturevalue("new_database") if request.param == "postgresql" else "")


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """The browser of all tests; each gets a service at a port of its own, hence an origin."""
    from .local_chromium import Chromium, ChromiumUnavailable

    try:
        one = Chromium(tmp_path_factory.mktemp("chromium"))
    except ChromiumUnavailable as error:
        pytest.skip(f"no Chromium: {error}")
    yield one
    one.close()


@pytest.fixture
def browser(chromium: Chromium) -> Iterator[Chromium]:
    """The browser, held to account after each test."""
    chromium.begin()
    chromium.resize(1440)
    yield chromium
    chromium.leave()
    assert chromium.complaints == []  # among them what the content-security policy refuses
    assert chromium.elsewhere == []


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Shown]:
    """An empty store with the page over it."""
    from .page_builders import shown

    with shown(tmp_path) as one:
        yield one
