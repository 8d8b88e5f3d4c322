"""An app with the telemetry route alone, a sink that remembers, and bodies."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from fastapi import FastAPI
from starlette.testclient import TestClient

from ingest.blocks import RecordBatch
from ingest.decode import Decoder, RawMessage
from service.intake import PATH, IntakeCounts, make_intake_router
from service.intake_config import IntakeConfig
from service.intake_lines import IntakeMessage
from service.intake_sinks import Sink

NDJSON = "application/x-ndjson"
JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"


class ListSink:
    """Remembers what it took; raises what it is given instead."""

    def __init__(self, error: Exception | None = None) -> None:
        self.messages: list[IntakeMessage] = []
        self.error = error

    def send(self, messages: Sequence[IntakeMessage]) -> None:
        if self.error is not None:
            raise self.error
        self.messages += messages

    def close(self) -> None:
        pass

    def batch(self) -> RecordBatch:
        """What a worker makes of the messages."""
        raw = [RawMessage("t:0", at, one.value, one.content_type) for at, one in enumerate(self.messages)]
        return Decoder().decode(raw)

    def iterations(self, run: str) -> list[int]:
        """Iterations of a run's records, in the order that the worker sees them."""
        batch = self.batch()
        rows = zip(batch.run_N.tolist(), batch.iteration_N.tolist(), strict=True)
        return [iteration for code, iteration in rows if batch.runs[code] == run]


def client_of(sink: Sink, counts: IntakeCounts | None = None, **config: Any) -> TestClient:
    """A client of an app that has nothing but the route."""
    app = FastAPI()
    app.include_router(make_intake_router(sink, IntakeConfig(**config), counts=counts))
    return TestClient(app, raise_server_exceptions=True)


def post(
    client: TestClient,
    body: bytes | Iterable[bytes],
    content_type: str = NDJSON,
    headers: Mapping[str, str] | None = None,
) -> Any:
    """Send a body; gives the response."""
    content = body if isinstance(body, bytes) else iter(body)
    return client.post(PATH, content=content, headers={"content-type": content_type, **(headers or {})})


def record(iteration: int, run: str = "job", rank: int = 0, **more: Any) -> dict[str, object]:
    return {"run": run, "rank": rank, "iteration": iteration, "loss": 1.5, **more}


def lines(*records: Mapping[str, object] | bytes) -> bytes:
    """Records, and bytes as they are, as lines."""
    return b"".join(
        one + b"\n" if isinstance(one, bytes) else json.dumps(one).encode() + b"\n" for one in records
    )


def arrow(columns: Mapping[str, Sequence[object] | pa.Array], rows_a_batch: int = 1 << 20) -> bytes:
    """Columns as an Arrow stream."""
    table = pa.table(dict(columns))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows_a_batch)
    return bytes(sink.getvalue())
