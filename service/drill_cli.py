"""The arguments of `firstfault drill` and of its study."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .edge import outer_edge

if TYPE_CHECKING:
    from firstfault.drill.rig.drilling import RigDrill

app = typer.Typer(invoke_without_command=True)


@app.callback()
def drill(
    context: typer.Context,
    *,
    scenario: Annotated[
        str | None,
        typer.Option("--scenario", metavar="NAME", help="A story with its truth; drift_param if not given."),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option("--kind", metavar="K", help="One fault instead of a scenario; --list names the kinds."),
    ] = None,
    site: Annotated[
        str | None,
        typer.Option("--site", metavar="S", help="Where it acts; the kind's first site if not given."),
    ] = None,
    layout: Annotated[
        str | None,
        typer.Option("--layout", metavar="L", help="How the ranks share the work; alone it trains healthy."),
    ] = None,
    is_listing: Annotated[
        bool, typer.Option("--list", help="Name the scenarios, kinds, sites and layouts, and end.")
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
    ranks: Annotated[
        int | None, typer.Option("--ranks", metavar="N", help="Data-parallel replicas; 8 if not given.")
    ] = None,
    iterations: Annotated[
        int | None, typer.Option("--iterations", metavar="N", help="Length of the run.")
    ] = None,
    engine: Annotated[
        str,
        typer.Option("--engine", metavar="E", help="virtual: one process; processes: one a rank, over gloo."),
    ] = "virtual",
    rank: Annotated[
        int | None, typer.Option("--rank", metavar="N", help="The faulty rank; drawn if not given.")
    ] = None,
    at: Annotated[
        int | None,
        typer.Option("--at", metavar="N", help="First iteration of the fault; drawn if not given."),
    ] = None,
    lasts: Annotated[
        int | None, typer.Option("--lasts", metavar="N", help="Iterations that it lasts; 0 to the end.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", metavar="Q", help="Share of the passes that it strikes.")
    ] = None,
    bit: Annotated[
        int | None, typer.Option("--bit", metavar="N", help="Bit that flips or sticks, 0 is the lowest.")
    ] = None,
    dtype: Annotated[
        str | None, typer.Option("--dtype", metavar="T", help="Format of the bit: fp32, bf16, fp16.")
    ] = None,
    magnitude: Annotated[
        float | None, typer.Option("--magnitude", metavar="X", help="Relative error, or factor.")
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", metavar="N", help="Values that it strikes in a pass.")
    ] = None,
    place: Annotated[
        str | None, typer.Option("--place", metavar="P", help="Product that it strikes, as layer0.qkv.")
    ] = None,
    optimizer: Annotated[
        str | None, typer.Option("--optimizer", metavar="O", help="With --kind or --layout: adamw or sgd.")
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option("--precision", metavar="P", help="With --kind or --layout: fp32, bf16, fp16."),
    ] = None,
    twin: Annotated[
        Path | None,
        typer.Option(
            "--twin", metavar="PATH", help="With --kind: the log of the same run without the fault."
        ),
    ] = None,
) -> None:
    """Train a small real model on several ranks, break it on purpose, and write its log.

    Shows what a fault looks like before you have one, and tests the path of an
    alert. Needs torch, the extra named torch.

    Examples:

      firstfault drill --scenario nan_input --seed 7

      firstfault replay nan_input.jsonl.gz

      firstfault drill --kind bit_flip --site reduce_out --rank 3 --bit 25 --twin twin.jsonl

      firstfault drill --list
    """
    if context.invoked_subcommand is not None:
        return
    with outer_edge():
        from firstfault.drill.rig.drilling import RigDrill

        asked = RigDrill(
            kind=kind,
            site=site,
            layout=layout,
            ranks=ranks,
            iterations=iterations,
            seed=seed,
            rank=rank,
            at=at,
            lasts=lasts,
            rate=rate,
            bit=bit,
            dtype=dtype,
            magnitude=magnitude,
            count=count,
            place=place,
            optimizer=optimizer,
            precision=precision,
            engine=engine,
        )
        if is_listing:
            _list()
        else:
            _write(asked, scenario, out, twin, is_all=is_all)


def _list() -> None:
    from .drill_command import list_scenarios, naming_files
    from .rig_command import list_kinds

    with naming_files():
        list_scenarios()
        list_kinds()


def _write(
    asked: RigDrill, scenario: str | None, out: Path | None, twin: Path | None, *, is_all: bool
) -> None:
    from .drill_command import naming_files, write_all, write_drill
    from .rig_command import is_of_rig, refuse_beside_all, write_rig_drill

    with naming_files():
        if is_all:
            refuse_beside_all(asked, scenario, twin)
            write_all(out or Path())
        elif is_of_rig(asked, scenario, twin):
            write_rig_drill(asked, out, twin)
        else:
            write_drill(
                scenario or "drift_param",
                seed=asked.seed,
                ranks=8 if asked.ranks is None else asked.ranks,
                iterations=asked.iterations,
                out=out,
                engine=asked.engine,
            )


@app.command()
def study(
    *,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Folder for study.jsonl, study.md and study.svg.")
    ] = Path("study"),
    seeds: Annotated[
        int | None, typer.Option("--seeds", metavar="N", min=1, max=10_000, help="Jobs of each recipe.")
    ] = None,
    bit_step: Annotated[
        int | None,
        typer.Option("--bit-step", metavar="N", min=1, max=32, help="Flip every N-th bit; 1 flips each."),
    ] = None,
    is_quick: Annotated[
        bool, typer.Option("--quick", help="One seed, every eighth bit, shorter runs: minutes.")
    ] = False,
) -> None:
    """What single faults do to training: outcome shares beside those of the literature.

    Runs a grid of training recipes, sites, kinds, bits and seeds, each case against the
    same run without its fault. Stopped and started again it goes on where it was.
    Prints the table, and writes it and a picture beside the results. Needs torch.

    Examples:

      firstfault drill study --quick

      firstfault drill study --seeds 20 --bit-step 1 --out results
    """
    with outer_edge():
        from .drill_command import naming_files
        from .study_command import run_study_command

        with naming_files():
            run_study_command(out, seeds=seeds, bit_step=bit_step, is_quick=is_quick)
