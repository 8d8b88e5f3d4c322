"""The arguments of `firstfault compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .edge import outer_edge

COMPARE_STATUSES = """Exit status: 0 the same, 1 they differ, 2 wrong usage, unreadable
input, or nothing can be told. 3: firstfault could not do its work."""


def compare(
    first: Annotated[Path, typer.Argument(metavar="A", help="A file or folder that holds one run.")],
    second: Annotated[
        Path | None,
        typer.Argument(metavar="[B]", help="Another; without it, the last two attempts of A."),
    ] = None,
    *,
    attempts: Annotated[
        str | None,
        typer.Option("--attempts", metavar="I,J", help="Attempt I of A against attempt J of B (or of A)."),
    ] = None,
    is_exact: Annotated[
        bool, typer.Option("--exact", help="Every bit must be equal: the job is known to be deterministic.")
    ] = False,
    tolerance: Annotated[
        float | None,
        typer.Option("--tolerance", metavar="SHARE", help="Window means this far apart are the same: 0.01."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object on standard output, and nothing else there.")
    ] = False,
    run: Annotated[
        str | None, typer.Option("--run", metavar="NAME", help="Compare the runs of this name.")
    ] = None,
    format_name: Annotated[
        str | None, typer.Option("--format", metavar="F", help="As in `firstfault replay`.")
    ] = None,
    columns: Annotated[
        list[str] | None, typer.Option("--column", metavar="NAME=COLUMN", help="As in `firstfault replay`.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Settings as TOML; see `config show`.")
    ] = None,
) -> None:
    """Compare two logs at the same iterations: what differs first, bit for bit or beyond noise.

    Runs that are deterministic are compared bit for bit: the first iteration,
    rank and metric that differ. Others are compared by the means of windows,
    if the early common stretch tells how far such runs are apart; else the
    answer is that nothing can be told.

    Examples:

      firstfault compare before.jsonl after.jsonl

      firstfault compare resumed.jsonl --attempts 0,1
    """
    with outer_edge():
        from .compare_command import CompareRequest, run_compare

        request = CompareRequest(
            first=str(first),
            second=None if second is None else str(second),
            attempts=attempts,
            run=run,
            format_name=format_name,
            columns=tuple(columns or ()),
            is_exact=is_exact,
            tolerance=tolerance,
            as_json=as_json,
            config=config,
        )
        status = run_compare(request)
    raise typer.Exit(status)
