"""The arguments of `firstfault drill` and of its study."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .edge import outer_edge

app = typer.Typer(invoke_without_command=True)


@app.callback()
def drill(
    context: typer.Context,
    *,
    scenario: Annotated[
        str, typer.Option("--scenario", metavar="NAME", help="What goes wrong; --list names them.")
    ] = "drift_param",
    is_listing: Annotated[
        bool, typer.Option("--list", help="Name the scenarios and what each injects, and end.")
    ] = False,
    is_all: Annotated[
        bool,
        typer.Option("--all", help="Every scenario with its own seed, and a manifest of their truths."),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="PATH", help="File (.jsonl, .jsonl.gz) or folder for the log."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", help="Moves the fault to another rank and iteration.")
    ] = None,
    ranks: Annotated[int, typer.Option("--ranks", metavar="N", help="Data-parallel replicas.")] = 8,
    iterations: Annotated[
        int | None, typer.Option("--iterations", metavar="N", help="Length of the run.")
    ] = None,
    engine: Annotated[
        str,
        typer.Option("--engine", metavar="E", help="virtual: one process; processes: one a rank, over gloo."),
    ] = "virtual",
) -> None:
    """Train a small real model on several ranks, break it on purpose, and write its log.

    Shows what a fault looks like before you have one, and tests the path of an
    alert. Needs torch, the extra named torch.

    Examples:

      firstfault drill --scenario nan_input --seed 7

      firstfault replay nan_input.jsonl.gz

      firstfault drill --list
    """
    if context.invoked_subcommand is not None:
        return
    with outer_edge():
        from .drill_command import list_scenarios, write_all, write_drill

        if is_listing:
            list_scenarios()
        elif is_all:
            write_all(out or Path())
        else:
            write_drill(scenario, seed=seed, ranks=ranks, iterations=iterations, out=out, engine=engine)


@app.command()
def study(
    *,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Folder for study.jsonl, study.md and study.svg.")
    ] = Path("study"),
    seeds: Annotated[
        int | None, typer.Option("--seeds", metavar="N", min=1, max=10_000, help="Jobs of each recipe.")
    ] = None,
    bits: Annotated[
        int | None,
        typer.Option("--bits", metavar="N", min=1, max=32, help="Bits of each value that flip, drawn."),
    ] = None,
    is_quick: Annotated[
        bool, typer.Option("--quick", help="One seed, four bits, shorter runs: minutes, wide intervals.")
    ] = False,
) -> None:
    """What single faults do to training: outcome shares beside those of the literature.

    Runs a grid of training recipes, sites, kinds, bits and seeds, each case against the
    same run without its fault. Stopped and started again it goes on where it was.
    Prints the table, and writes it and a picture beside the results. Needs torch.

    Examples:

      firstfault drill study --quick

      firstfault drill study --seeds 20 --bits 32 --out results
    """
    with outer_edge():
        from .study_command import run_study_command

        run_study_command(out, seeds=seeds, bits=bits, is_quick=is_quick)
