"""The command line: the commands of `firstfault` and their arguments.

Standard output is data, standard error is talk. Everything heavy is imported inside the command that
needs it, so that a small file is judged in under a second.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated, NoReturn

try:
    import typer
except ModuleNotFoundError:
    # `pip install --no-deps` is for trainers; status 1 would read as a confirmed incident
    sys.stderr.write("firstfault: commands need all dependencies: install without --no-deps\n")
    raise SystemExit(3) from None

from .alerts_cli import app as alerts_app
from .canary_cli import canary
from .compare_cli import COMPARE_STATUSES, compare
from .drill_cli import app as drill_app
from .edge import Exit, last_edge, outer_edge
from .live_cli import doctor, serve, worker
from .token_command import app as token_app
from .triage_cli import app as mute_app
from .triage_cli import feedback
from .upkeep_cli import backup, prune, restore
from .what_if_cli import WHAT_IF_STATUSES, what_if

EXIT_STATUSES = """Exit status: 1 if any run has a confirmed incident; else 2 if input was
unreadable, too little to judge a run, or the command used wrongly; else 0.
3: firstfault could not do its work."""

app = typer.Typer(
    name="firstfault",
    epilog="Start here: firstfault replay train.jsonl    or: firstfault demo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
config_app = typer.Typer(help="Look at the settings.", no_args_is_help=True)
app.add_typer(config_app, name="config")
app.add_typer(drill_app, name="drill")
app.add_typer(token_app, name="token")
app.add_typer(mute_app, name="mute")
app.add_typer(alerts_app, name="alerts")


def _tell_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version as release

        typer.echo(f"firstfault {release('firstfault')}")
        raise typer.Exit()


@app.callback()
def main_options(
    *,
    _version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_tell_version, help="The version, and end.")
    ] = False,
) -> None:
    """Find the first fault of a training job: which curve went wrong, on which rank, at which
    iteration, and since when.
    """


ConfigFile = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="Settings as TOML; see `config show`.")
]


@app.command(epilog=EXIT_STATUSES)
def replay(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH…", help="Files, folders, or - for standard input.")
    ],
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="One verdict a line on standard output, and nothing else there.")
    ] = False,
    run: Annotated[
        str | None, typer.Option("--run", metavar="NAME", help="Judge only the run of this name.")
    ] = None,
    format_name: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="F",
            help="Where the bytes mislead: text, csv, tsv, jsonl, json, arrow, parquet, tensorboard,"
            " wandb or mlflow.",
        ),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            metavar="NAME=COLUMN",
            help="What a column or key is: loss=lm_loss. May be repeated.",
        ),
    ] = None,
    is_following: Annotated[
        bool,
        typer.Option("--follow", help="Keep reading as the files grow; report each change, end with Ctrl-C."),
    ] = False,
    quarantine: Annotated[
        Path | None,
        typer.Option("--quarantine", metavar="FILE", help="Keep what was rejected here, as JSON lines."),
    ] = None,
    diagnostics: Annotated[
        list[Path] | None,
        typer.Option(
            "--diagnostics",
            metavar="FILE",
            help="A report about the hardware: dcgmi diag -j, ascend-dmi, nvidia-smi -q -x, a kernel log.",
        ),
    ] = None,
    html: Annotated[
        str | None,
        typer.Option(
            "--html", metavar="FILE", help="Also write one page that stands alone; - is standard output."
        ),
    ] = None,
    is_detailed: Annotated[
        bool, typer.Option("--details", help="All that was recognised of the files, and all remarks.")
    ] = False,
    config: ConfigFile = None,
) -> None:
    """Judge log files: a sentence that says what happened, why, and what to do.

    Reads text logs of any form, tables, JSON (trainer_state.json and others),
    TensorBoard, W&B, MLflow, Arrow and Parquet, also packed and in archives.
    Files whose names differ only by a rank number are one job.

    Examples:

      firstfault replay slurm-1001.out

      firstfault replay train.csv --html report.html

      firstfault replay logs/ --json | jq -r .label

      srun train.sh 2>&1 | firstfault replay --follow -
    """
    with outer_edge():
        from .replay_command import ReplayRequest, run_replay

        request = ReplayRequest(
            paths=tuple(str(path) for path in paths),
            diagnostics=tuple(str(path) for path in diagnostics or ()),
            as_json=as_json,
            run=run,
            format_name=format_name,
            columns=tuple(columns or ()),
            is_following=is_following,
            quarantine=quarantine,
            config=config,
            html=html,
            is_detailed=is_detailed,
            command=shlex.join(["firstfault", "replay", *(str(path) for path in paths)]),
        )
        status = run_replay(request)
    raise typer.Exit(status)


app.command(epilog=COMPARE_STATUSES)(compare)


app.command(epilog=EXIT_STATUSES)(canary)
app.command()(serve)
app.command()(worker)
app.command()(doctor)
app.command()(feedback)
app.command("what-if", epilog=WHAT_IF_STATUSES)(what_if)
app.command()(backup)
app.command()(restore)
app.command()(prune)


@app.command()
def demo(
    *,
    is_ending: Annotated[
        bool, typer.Option("--exit", help="End as soon as both verdicts are there.")
    ] = False,
    kafka: Annotated[
        str | None,
        typer.Option("--kafka", metavar="HOST:PORT", envvar="KAFKA", help="Use this broker, start none."),
    ] = None,
    speed: Annotated[
        float, typer.Option("--speed", metavar="N", min=0.01, max=1000.0, help="Times the usual pace.")
    ] = 1.0,
) -> None:
    """Watch the whole path at work: two recorded runs stream through Kafka, one has a corrupted rank.

    Starts a real single-node Kafka of its own where Java and Maven are there.
    Without a broker the same is shown through growing files. Leaves nothing
    behind.

    Examples:

      firstfault demo

      firstfault demo --exit --kafka localhost:9092
    """
    with outer_edge():
        from .demo import run_demo

        status = run_demo(is_ending=is_ending, kafka=kafka or None, speed=speed)
    raise typer.Exit(status)


@app.command()
def version() -> None:
    """Say which release this is."""
    _tell_version(asked=True)


@config_app.command("show")
def config_show(config: ConfigFile = None) -> None:
    """Print the resolved settings as TOML: defaults, file, environment. Secrets are masked.

    Examples:

      firstfault config show > firstfault.toml

      firstfault config show --config firstfault.toml
    """
    with outer_edge():
        from .config import load_settings
        from .config_text import to_toml

        typer.echo(to_toml(load_settings(config)), nl=False)


@config_app.command("check")
def config_check(
    config: ConfigFile = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="One finding a line, as JSON.")] = False,
) -> None:
    """Say whether the settings can be and will work together; connects to nothing.

    Exit status: 0 if nothing is wrong, 2 if something in them cannot work.

    Examples:

      firstfault config check --config firstfault.toml
    """
    with outer_edge():
        from .doctor_command import run_check

        status = run_check(config, as_json=as_json)
    raise typer.Exit(status)


def main() -> NoReturn:
    """The entry point of the command ``firstfault``."""
    with last_edge():
        app()
    sys.exit(Exit.HEALTHY)


if __name__ == "__main__":
    main()
