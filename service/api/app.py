"""The application: routes behind a guard behind a frame.

request → Frame (id, headers, last word) → SizeLimit → Guard (who) → RateLimit → Semantics → routes → store
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from importlib.metadata import version
from pathlib import Path

from fastapi import APIRouter, Depends, FastAPI, Response
from fastapi.responses import JSONResponse

from service.access import TokenBook
from service.config import Settings
from service.database import Database
from service.history_reader import HistoryReader
from service.what_if_desk import Desk

from . import (
    alerts,
    checksums,
    curves,
    detectors,
    health,
    heatmap,
    hosts,
    incidents,
    metrics,
    mutes,
    propagation,
    revisions,
    runs,
    stream_route,
    tokens,
    what_if,
)
from .context import Context
from .frame import Frame
from .guards import Guard
from .limits import SizeLimit, known_parameters
from .metrics import ApiMetrics
from .openapi import describe
from .problems import add_handlers
from .rates import Buckets, RateLimit
from .semantics import Semantics
from .settings import ApiConfig
from .stream import Hub
from .workers import Reason

DESCRIPTION = (
    "What went wrong first in a training job: on which rank, at which iteration, and since when."
    " Non-finite numbers are the strings NaN, Infinity and -Infinity; absent is null."
    " Times are RFC 3339 in UTC. Errors are problem details (RFC 9457)."
)


_ROUTERS = tuple(
    module.router
    for module in (
        runs,
        curves,
        checksums,
        propagation,
        heatmap,
        what_if,
        incidents,
        revisions,
        mutes,
        alerts,
        hosts,
        detectors,
        tokens,
        stream_route,
        health,
        metrics,
    )
)


def make_app(
    database: Database,
    config: ApiConfig | None = None,
    *,
    routers: Sequence[APIRouter] = (),
    history_folder: Path | None = None,
    further_reasons: Callable[[], Sequence[Reason]] = tuple,
    clock: Callable[[], float] = time.time,
    settings: Settings | None = None,
) -> FastAPI:
    """The API over a store; ``routers`` add what others own (telemetry in, the page).

    The store's schema is up to date: whoever starts the service has seen to that. ``history_folder`` is
    where the worker keeps curves, if it is on this machine; ``further_reasons`` what its starter knows to
    be amiss; ``settings`` are those that the worker judges with.
    """
    config, settings = config or ApiConfig(), settings or Settings()
    cells = config.max_matrix_cells
    history = None if history_folder is None else HistoryReader(history_folder, max_cells=cells)
    context = Context(
        database=database,
        config=config,
        clock=clock,
        history=history,
        history_folder=history_folder,
        detectors=settings.detectors,
        lateness_iterations=settings.pipeline.alignment.lateness_iterations,
        further_reasons=further_reasons,
        alerts=settings.alerts,
    )
    app = _bare_app()
    app.state.context = context
    app.state.desk = Desk()
    app.state.metrics = ApiMetrics(context)
    app.state.hub = Hub(database, config, app.state.metrics.streams.set)
    add_handlers(app)
    for router in (*_ROUTERS, *routers):
        app.include_router(router)
    documents = _openapi_router(app)
    app.include_router(documents)
    _wrap(app, context, app.state.metrics, (*_ROUTERS, *routers, documents))
    return app


def _bare_app() -> FastAPI:
    return FastAPI(
        title="firstfault",
        version=version("firstfault"),
        description=DESCRIPTION,
        lifespan=_lifespan,
        docs_url=None,  # both load scripts from elsewhere
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,  # what generated clients call a function
        dependencies=[Depends(known_parameters)],
    )


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    hub: Hub = app.state.hub
    watching = asyncio.create_task(hub.watch())
    try:
        yield
    finally:
        hub.close()
        app.state.desk.close()
        await watching


def _wrap(app: FastAPI, context: Context, figures: ApiMetrics, routers: Sequence[APIRouter]) -> None:
    """Innermost first: each added layer goes around those before."""
    config = context.config
    app.add_middleware(Semantics, routers=routers)
    app.add_middleware(
        RateLimit,
        others=Buckets(config.requests_per_second, config.request_burst),
        telemetry=Buckets(config.telemetry_per_second, 2 * config.telemetry_per_second),
    )
    app.add_middleware(
        Guard,
        authority=TokenBook(context.database, context.clock),
        host_names=config.host_names,
        failures_per_minute=config.failed_tokens_per_minute,
        count_failure=figures.failed_tokens.inc,
    )
    app.add_middleware(SizeLimit, max_bytes=config.max_body_bytes)
    app.add_middleware(Frame, observe=figures.observe, logs_requests=config.logs_requests)


def _openapi_router(app: FastAPI) -> APIRouter:
    app.openapi = lambda: describe(app)  # type: ignore[method-assign]  # FastAPI's documented way
    router = APIRouter(include_in_schema=False)

    @router.get("/openapi.json")
    def openapi() -> Response:
        return JSONResponse(app.openapi())

    return router
