"""The other commands: settings shown, failures told in one line, help worth reading."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from service.cli import app, main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def firstfault(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command in this process; gives exit status, standard output, standard error."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["firstfault", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run


def test_the_package_run_as_a_module_is_the_command() -> None:
    command = [sys.executable, "-m", "firstfault", "version"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed.startswith("firstfault ")


def test_config_show_prints_toml_with_every_table(firstfault: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRSTFAULT_KAFKA", "broker:1")
    status, out, _ = firstfault("config", "show")
    assert status == 0
    assert tomllib.loads(out)["kafka"]["bootstrap"] == ["broker:1"]


def test_a_wrong_setting_exits_2_with_one_line_that_names_it(firstfault: Run, tmp_path: Path) -> None:
    path = tmp_path / "f.toml"
    path.write_text("[worker]\njudge_evry_s = 1\n")
    for command in (["config", "show"], ["worker", "--data", tmp_path / "data"]):
        status, out, err = firstfault(*command, "--config", path)
        assert (status, out) == (2, "")
        assert err.startswith("firstfault: worker.judge_evry_s: unknown key")
        assert len(err.splitlines()) == 1


def test_a_store_that_cannot_be_opened_exits_3(firstfault: Run, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where a folder should be")
    status, out, err = firstfault("worker", "--data", tmp_path / "data", "--kafka", "127.0.0.1:1")
    assert (status, out) == (3, "")
    assert "firstfault: " in err
    assert "data" in err


def test_version_names_the_release(firstfault: Run) -> None:
    status, out, _ = firstfault("version")
    assert status == 0
    assert out.startswith("firstfault 0.")


def test_drill_lists_its_scenarios(firstfault: Run) -> None:
    status, out, _ = firstfault("drill", "--list")
    assert status == 0
    assert {line.partition(" ")[0] for line in out.splitlines()} >= {"healthy", "drift_param"}


def test_an_unknown_scenario_exits_2_and_names_those_there_are(firstfault: Run) -> None:
    status, _, err = firstfault("drill", "--scenario", "meteor")
    assert status == 2
    assert "drift_param" in err


def test_drill_lists_the_kinds_of_fault_with_their_sites(firstfault: Run) -> None:
    status, out, _ = firstfault("drill", "--list")
    assert status == 0
    # a summary may go over several lines
    assert "(reduce_in)" in out[out.index("\nstale ") :].partition("\ndropped ")[0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--bit", 3], "--bit is of one fault or of a layout: give --kind or --layout too"),
        (
            ["--scenario", "healthy", "--kind", "stale"],
            "--scenario has its fault and its layout, got --kind too",
        ),
        (["--ranks", 0], "ranks must be from 1 to 64, got 0"),
        (["--twin", "twin.jsonl"], "--twin is of one fault or of a layout: give --kind or --layout too"),
        (["--scenario", "healthy", "--twin", "twin.jsonl"], "its fault and its layout, got --twin too"),
        (["--all", "--kind", "stale"], "--all drills every scenario with its own settings, got --kind too"),
        (["--all", "--engine", "processes"], "own settings, got --engine too"),
        (["--kind", "gremlin"], "kind must be one of bit_flip"),
        (["--layout", "ring"], "layout must be one of dp"),
        (
            ["--kind", "stale", "--optimizer", "magic"],
            "training.optimizer must be one of sgd, adamw, got 'magic'",
        ),
    ],
)
def test_a_fault_that_cannot_be_drilled_exits_2_and_says_why(
    firstfault: Run, options: list[object], words: str
) -> None:
    status, out, err = firstfault("drill", *options)
    assert (status, out) == (2, "")
    assert words in err


@pytest.mark.torch
@pytest.mark.parametrize("options", [["--kind", "stale", "--iterations", 5], ["study", "--quick"]])
def test_a_place_that_cannot_be_written_is_named(
    firstfault: Run, tmp_path: Path, options: list[object]
) -> None:
    place = tmp_path / "file"
    place.touch()
    status, _, err = firstfault("drill", *options, "--out", place)
    assert status == 2
    assert f"{place} must be a file or folder that can be written" in err


@pytest.mark.torch
def test_drill_writes_one_fault_and_the_run_without_it(firstfault: Run, tmp_path: Path) -> None:
    out, twin = tmp_path / "stale.jsonl", tmp_path / "twin.jsonl"
    options = ["--kind", "stale", "--ranks", 2, "--iterations", 5, "--at", 3, "--out", out, "--twin", twin]
    status, printed, err = firstfault("drill", *options)
    assert (status, printed.split()) == (0, [str(out)])
    assert "judge it with: firstfault replay" in err
    lines, clean = out.read_text().splitlines(), twin.read_text().replace("stale-twin", "stale").splitlines()
    assert [one == other for one, other in zip(lines, clean, strict=True)].index(False) == 1 + 2 * 3


@pytest.mark.parametrize(
    "command", [one.name or one.callback.__name__ for one in app.registered_commands if one.callback]
)
def test_every_command_explains_itself(firstfault: Run, command: str) -> None:
    status, out, _ = firstfault(command, "--help")
    assert status == 0
    assert command == "version" or "Examples:" in out
    assert max(len(line) for line in out.splitlines()) <= 80


@pytest.mark.parametrize("words", [["version"], ["--version"]])
def test_the_version_is_told_as_a_command_and_as_an_option(firstfault: Run, words: list[str]) -> None:
    from importlib.metadata import version

    assert firstfault(*words) == (0, f"firstfault {version('firstfault')}\n", "")


def test_an_installation_without_dependencies_says_so_and_exits_3() -> None:
    program = "import sys; sys.modules['typer'] = None; import service.cli"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 3
    assert ended.stderr.splitlines() == [
        "firstfault: commands need all dependencies: install without --no-deps"
    ]
