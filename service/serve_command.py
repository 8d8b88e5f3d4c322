"""`firstfault serve`: the API in this process, one worker in a child that is kept alive.

    HTTP ─→ API process ─spool or topic→ worker process ─→ store ─→ API process ─→ HTTP

Both stop together: the worker is told when the server begins to stop, and each has less than five seconds.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import socket
import sys
import threading
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .alerts.trial import check_channels
from .config import Settings, load_settings, names_kafka
from .edge import tell
from .errors import AlreadyRunning, ConfigError, ServiceError
from .folder_lock import FolderLock
from .logs import log_to
from .serve_config import ServeConfig
from .supervisor import ChildState, Supervisor
from .tls_files import Certificate

if TYPE_CHECKING:
    from .api.serving import ApiServer
    from .api.workers import Reason
    from .database import Database
    from .intake_sinks import Sink

log = logging.getLogger(__name__)

_BACKLOG = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeRequest:
    """What was asked for on the command line; None leaves it to the settings."""

    host: str | None
    port: int | None
    data: Path
    kafka: str | None
    config: Path | None
    tls_cert: str | None = None
    tls_key: str | None = None

    @property
    def uses_kafka(self) -> bool:
        """Whether telemetry goes through Kafka: where a broker is named; else through the spool."""
        return self.kafka is not None or names_kafka(self.config)

    def settings(self) -> Settings:
        """The resolved settings."""
        given = {
            "serve.host": self.host,
            "serve.port": self.port,
            "serve.tls_cert": self.tls_cert,
            "serve.tls_key": self.tls_key,
            "kafka.bootstrap": self.kafka,
        }
        return load_settings(
            self.config, overrides={key: value for key, value in given.items() if value is not None}
        )


def run_serve(request: ServeRequest) -> int:
    """Serve until SIGTERM or Ctrl-C; 0 after a clean end.

    Raises:
        ConfigError: the settings cannot be, or the service would be open to others without a token.
        AlreadyRunning: another service holds the folder or the port.
        StoreError: the store cannot be used.
        SpoolUnusable: the spool cannot be used.
    """
    settings = request.settings()
    check_channels(settings.alerts)
    log_to(sys.stderr)
    with ExitStack() as stack:
        stack.callback(FolderLock(request.data, "serve").release)
        database = _open_store(request.data, settings, stack)
        if settings.serve.tls_cert:
            _certificate(settings.serve).check()
        listener = stack.enter_context(listen(settings.serve.host, settings.serve.port))
        sink = _make_sink(request, settings)
        stack.callback(sink.close)
        server, supervisor = _make_server(request, settings, database, sink)
        for number in (signal.SIGINT, signal.SIGTERM):
            # uvicorn hands a signal on once it has stopped; the end of the process is ours
            signal.signal(number, lambda *_: None)
        supervisor.start()
        stack.callback(supervisor.stop)
        tell(_told(request, settings, listener))
        server.run(sockets=[listener])
        if not server.started:
            raise ServiceError("the server did not start; the log says why")
    log.info("service stopped")
    _leave_who_waits()
    return 0


def listen(host: str, port: int) -> socket.socket:
    """A listening socket.

    Raises:
        AlreadyRunning: the port is taken.
        ConfigError: no such address on this machine, or no right to the port.
    """
    where = _joined(host, port)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        return socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        # the error's own text names the address once more; that of a name that cannot be found has no number
        reason = str(error) if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
        if error.errno == errno.EADDRINUSE:
            told = f"{where}: {reason}: stop what listens there, or give another --port"
            raise AlreadyRunning(told) from error
        raise ConfigError(f"serve.host and serve.port: {where}: {reason}") from error


def worker_command(request: ServeRequest) -> list[str]:
    """The worker's command line: the same folder and settings file, the source that was chosen here."""
    command = [sys.executable, "-m", "service.cli", "worker", "--data", str(request.data), "--end-with-stdin"]
    if request.config is not None:
        command += ["--config", str(request.config)]
    if not request.uses_kafka:
        return [*command, "--spool"]
    return [*command, "--kafka", request.kafka] if request.kafka is not None else command


def _open_store(data: Path, settings: Settings, stack: ExitStack) -> Database:
    from .access import TokenBook
    from .api.guards import is_loopback
    from .database import Database
    from .migrations import migrate

    database = Database(data, settings.store)
    stack.callback(database.close)
    migrate(database)
    host = settings.serve.host
    if not is_loopback(host) and not TokenBook(database).has_tokens():
        raise ConfigError(
            f"serve.host: {host} can be reached by others, which needs a token:"
            " firstfault token create; or listen on 127.0.0.1"
        )
    return database


def _certificate(serve: ServeConfig) -> Certificate:
    return Certificate(path=serve.tls_cert, key=serve.tls_key)


def _make_sink(request: ServeRequest, settings: Settings) -> Sink:
    from .intake_sinks import KafkaSink, SpoolSink

    if request.uses_kafka:
        return KafkaSink(settings.kafka, settings.intake)
    return SpoolSink(request.data, settings.spool)


def _make_server(
    request: ServeRequest, settings: Settings, database: Database, sink: Sink
) -> tuple[ApiServer, Supervisor]:
    from .api.app import make_app
    from .api.serving import make_server
    from .intake import IntakeCounts, make_intake_router
    from .intake_metrics import IntakeCollector
    from .intake_sinks import SpoolSink
    from .page.routes import make_page_router
    from .worker_process import HISTORY

    counts = IntakeCounts()
    app = make_app(
        database,
        settings.api,
        routers=[
            make_intake_router(sink, settings.intake, decode=settings.decode, counts=counts),
            make_page_router(),
        ],
        history_folder=request.data / HISTORY,
        further_reasons=lambda: _reasons(supervisor.state(), counts.refusal),
        settings=settings,
    )
    fill = sink.fill if isinstance(sink, SpoolSink) else None
    app.state.metrics.registry.register(IntakeCollector(counts, fill))
    serve = settings.serve
    server = make_server(
        app,
        host=serve.host,
        port=serve.port,
        trusted_proxies=serve.trusted_proxies,
        certificate=_certificate(serve) if serve.tls_cert else None,
    )
    supervisor = Supervisor(
        worker_command(request), settings.serve, is_stopping=lambda: bool(server.should_exit)
    )
    return server, supervisor


def _leave_who_waits() -> None:
    """End the process at once where a thread still waits for a broker that does not answer.

    Python would wait for the thread. Its request has been told that it failed.
    """
    waiting = [one for one in threading.enumerate() if one is not threading.main_thread() and not one.daemon]
    if waiting:
        logging.shutdown()
        sys.stdout.flush()
        os._exit(0)


def _reasons(worker: ChildState, refusal: str) -> list[Reason]:
    """What `/readyz` tells of a worker that does not stay alive, and of telemetry that cannot be kept."""
    from .api.workers import Reason

    reasons = []
    if worker.is_crash_looping:
        told = f"the worker was started {worker.early_deaths} times in a row and each time it soon ended"
        reasons.append(Reason("worker-crash-loop", f"{told}; last it ended with {worker.last_end}"))
    if refusal:
        reasons.append(Reason("intake-refuses", f"the last telemetry over HTTP was refused: {refusal}"))
    return reasons


def _told(request: ServeRequest, settings: Settings, listener: socket.socket) -> str:
    where = _joined(settings.serve.host, listener.getsockname()[1])
    brokers = ", ".join(settings.kafka.bootstrap)
    source = f"through Kafka at {brokers}" if request.uses_kafka else "over HTTP"
    scheme = "https" if settings.serve.tls_cert else "http"
    return f"firstfault serves {scheme}://{where} (data in {request.data}, telemetry {source})"


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"
