"""`firstfault serve`, `worker` and `doctor` as the command line has them: options and help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .edge import outer_edge

ConfigFile = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="Settings as TOML; see `config show`.")
]
Brokers = Annotated[
    str | None,
    typer.Option("--kafka", metavar="HOST:PORT", help="Broker to start from; several with commas."),
]
DataFolder = Annotated[
    Path, typer.Option("--data", metavar="DIR", help="Where incidents, offsets and history are stored.")
]


def serve(
    *,
    host: Annotated[
        str | None, typer.Option("--host", metavar="HOST", help="Address to listen on, 127.0.0.1 by default.")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", metavar="PORT", min=0, max=65535, help="8000 by default; 0: a free port."),
    ] = None,
    tls_cert: Annotated[
        str | None, typer.Option("--tls-cert", metavar="FILE", help="Certificate (PEM): speak TLS alone.")
    ] = None,
    tls_key: Annotated[
        str | None, typer.Option("--tls-key", metavar="FILE", help="Its key, where it is not in that file.")
    ] = None,
    data: DataFolder = Path("firstfault-data"),
    kafka: Brokers = None,
    config: ConfigFile = None,
) -> None:
    """The whole service: the API, and a worker in a process of its own that is started again if it dies.

    Telemetry comes in over HTTP, and from Kafka where a broker is named by
    --kafka, the settings or FIRSTFAULT_KAFKA; without one the data folder is
    all it needs. Listens on loopback unless there are tokens. Ends within five
    seconds of SIGTERM or Ctrl-C. Log lines (JSON) go to standard error.

    Examples:

      firstfault serve

      firstfault serve --kafka broker-1:9092,broker-2:9092 --data /var/lib/firstfault

      curl -H 'Content-Type: application/x-ndjson' --data-binary @train.jsonl http://127.0.0.1:8000/v1/telemetry
    """
    with outer_edge():
        from .serve_command import ServeRequest, run_serve

        run_serve(
            ServeRequest(
                host=host,
                port=port,
                data=data,
                kafka=kafka,
                config=config,
                tls_cert=tls_cert,
                tls_key=tls_key,
            )
        )


def worker(
    *,
    kafka: Brokers = None,
    data: Annotated[
        Path, typer.Option("--data", metavar="DIR", help="Where incidents and offsets are stored.")
    ] = Path("firstfault-data"),
    topic: Annotated[
        str | None, typer.Option("--topic", metavar="NAME", help="Topic that holds the telemetry.")
    ] = None,
    is_spooling: Annotated[
        bool, typer.Option("--spool", help="Read what `serve` took over HTTP into DIR, and no Kafka.")
    ] = False,
    config: ConfigFile = None,
    ends_with_stdin: Annotated[
        bool, typer.Option("--end-with-stdin", hidden=True, help="End when standard input does: for serve.")
    ] = False,
) -> None:
    """Judge telemetry from Kafka for as long as it comes: one sentence per new or worse incident.

    Incidents, offsets and checkpoints are kept in DIR; started again, it goes
    on where it was. Verdicts also go to the topic firstfault.verdicts, what was
    not understood to firstfault.dead-letter. Ends cleanly on SIGTERM and
    Ctrl-C. Log lines (JSON) go to standard error.

    Examples:

      firstfault worker --kafka broker-1:9092,broker-2:9092

      FIRSTFAULT_KAFKA=broker:9092 firstfault worker --config firstfault.toml
    """
    with outer_edge():
        from .worker_command import WorkerRequest, run_worker

        request = WorkerRequest(
            data=data,
            kafka=kafka,
            topic=topic,
            config=config,
            is_spooling=is_spooling,
            ends_with_stdin=ends_with_stdin,
        )
        run_worker(request)


def doctor(
    *,
    kafka: Brokers = None,
    data: DataFolder = Path("firstfault-data"),
    as_json: Annotated[bool, typer.Option("--json", help="One finding a line, as JSON.")] = False,
    config: ConfigFile = None,
) -> None:
    """Look at everything that `serve` and `worker` depend on: a line each, with the cure where it is wrong.

    Settings; of each broker its name, port, TLS, protocol and account; the
    cluster's brokers, our topics and what the account may do with them; codecs,
    store, disk and clock. Changes nothing. Exit status: 0 if all works, 2 if the
    settings cannot be, 3 if something fails.

    Examples:

      firstfault doctor --kafka broker-1:9092 --data /var/lib/firstfault

      firstfault doctor --config firstfault.toml --json | jq 'select(.state == "fail")'
    """
    with outer_edge():
        from .doctor_command import DoctorRequest, run_doctor

        status = run_doctor(DoctorRequest(data=data, kafka=kafka, config=config, as_json=as_json))
    raise typer.Exit(status)
