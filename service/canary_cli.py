"""The arguments of `firstfault canary`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from firstfault.preflight.config import DEFAULT_TIMEOUT_S

from .edge import outer_edge


def canary(
    *,
    rounds: Annotated[
        int | None,
        typer.Option("--rounds", metavar="N", help="How much to compute; 1000 rounds if not given."),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", metavar="S", help="As many rounds as take so long on rank 0.")
    ] = None,
    is_quick: Annotated[bool, typer.Option("--quick", help="Twenty rounds: a first look.")] = False,
    size: Annotated[
        str, typer.Option("--size", metavar="S", help="large, small or tiny; by the device if not given.")
    ] = "",
    reference: Annotated[
        Path | None,
        typer.Option("--reference", metavar="FILE", help="What an earlier healthy run wrote by --out."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Also keep the telemetry, as JSON lines.")
    ] = None,
    sink: Annotated[
        str | None,
        typer.Option("--sink", metavar="SINK", help="Also send it: http://…, kafka://host:port, a file."),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option("--run", metavar="NAME", help="Name of the run; by the launcher if not given."),
    ] = None,
    timeout_s: Annotated[
        float, typer.Option("--timeout", metavar="S", help="Longest wait for another rank.")
    ] = DEFAULT_TIMEOUT_S,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="The verdict as one line on standard output, and nothing else there."),
    ] = False,
) -> None:
    """Compute the same on every rank of a launch, and name the hosts that compute something else.

    Before or between jobs: deterministic training from end to end, with products,
    attention, copies and collectives, each done twice. Needs torch. Results of
    ranks of one device model and software are compared while it runs, and so
    are those of one rank with themselves. All ranks end with the same status.

    Examples:

      firstfault canary --quick

      torchrun --nnodes 16 --nproc-per-node 8 --rdzv-endpoint node01:29500 --no-python firstfault canary

      srun --ntasks-per-node 8 firstfault canary --seconds 600

      firstfault canary --out healthy.jsonl; firstfault canary --reference healthy.jsonl
    """
    with outer_edge():
        from .canary_command import CanaryRequest, run_canary

        status = run_canary(
            CanaryRequest(
                rounds=rounds,
                seconds=seconds,
                is_quick=is_quick,
                size=size,
                reference=reference,
                out=out,
                sink=sink,
                run=run,
                timeout_s=timeout_s,
                as_json=as_json,
            )
        )
    raise typer.Exit(status)
