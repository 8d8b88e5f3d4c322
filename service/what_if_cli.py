"""The arguments of `firstfault what-if`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .edge import outer_edge
from .triage_cli import DEFAULT_URL, Token, Url

WHAT_IF_STATUSES = """Exit status: 0 nothing changes, 1 something does, 2 wrong usage, or
what is kept cannot tell. 3: the service or the broker does not answer."""


def what_if(
    target: Annotated[
        str, typer.Argument(metavar="LOG|RUN", help="A file or folder, or the name of a run of the service.")
    ],
    *,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of a detector to try; may be repeated."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Settings to try, of a log or topic.")
    ] = None,
    base: Annotated[
        Path | None,
        typer.Option("--base", metavar="FILE", help="Settings to compare with; the defaults without."),
    ] = None,
    run: Annotated[
        str | None, typer.Option("--run", metavar="NAME", help="Of a log only the run of this name.")
    ] = None,
    kafka: Annotated[
        str | None,
        typer.Option("--kafka", metavar="HOST:PORT", help="Read the run from its topic, whole, once more."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One run a line, as JSON.")] = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
) -> None:
    """Judge the same records under other settings: which incidents appear, vanish, move or change.

    A log is judged twice. A run of the service is judged again out of what its
    history keeps, or with --kafka out of its topic; where that does not hold
    the run whole it is refused. Nothing that is stored changes.

    Examples:

      firstfault what-if train.jsonl --set detectors.explosion.norm_hold=20

      firstfault what-if logs/ --base now.toml --config other.toml

      firstfault what-if llama-7b --set detectors.stall.silent_iterations=128
    """
    with outer_edge():
        from .what_if_command import WhatIfRequest, run_what_if

        request = WhatIfRequest(
            target=target,
            changes=tuple(changes or ()),
            config=config,
            base=base,
            run=run,
            kafka=kafka,
            url=url,
            token=token,
            as_json=as_json,
        )
        status = run_what_if(request)
    raise typer.Exit(status)
