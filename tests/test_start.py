"""A plain `firstfault replay` is started without the library that reads command lines, and means the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from service import cli, replay_command
from service.replay_command import ReplayRequest
from service.start import plain_replay

PLAIN = [
    ["replay", "a.csv"],
    ["replay", "./a//b.csv", "c d.csv", "-", "--json"],
    ["replay", "--details", "a", "--html", "page.html", "--run", "r 1", "--format", "csv", "b"],
    ["replay", "--json", "--json", "a", "--run", "one", "--run", "two"],
]
LEFT = [
    [],
    ["serve"],
    ["replay"],
    ["replay", "--help"],
    ["replay", "--jsn", "a"],
    ["replay", "--json"],
    ["replay", "a", "--run"],
    ["replay", "a", "--run", "--json"],
    ["replay", "a", "--run=r"],
    ["replay", "--", "a"],
    ["replay", "-h", "a"],
    ["replay", "a", "--follow"],
    ["replay", ""],
    ["--version"],
]


@pytest.mark.parametrize("arguments", PLAIN, ids=" ".join)
def test_a_plain_command_line_means_what_the_library_makes_of_it(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[ReplayRequest] = []
    monkeypatch.setattr(replay_command, "run_replay", asked.append)
    cli.app(arguments, standalone_mode=False)

    plain = plain_replay(arguments)

    assert plain is not None
    assert [ReplayRequest(**plain)] == asked


@pytest.mark.parametrize("arguments", LEFT, ids=" ".join)
def test_whatever_is_not_plain_is_left_to_the_library(arguments: list[str]) -> None:
    assert plain_replay(arguments) is None


@pytest.mark.parametrize(
    ("arguments", "status"),
    [(["replay", "{healthy}"], 0), (["replay", "{missing}", "--json"], 2), (["replay", "--nothing"], 2)],
)
def test_both_ways_print_the_same_and_end_the_same(arguments: list[str], status: int, tmp_path: Path) -> None:
    healthy = tmp_path / "t.csv"
    healthy.write_text("step,loss\n" + "".join(f"{at},{2.0 + at % 7 / 100}\n" for at in range(300)))
    places = {"healthy": healthy, "missing": tmp_path / "none.csv"}
    filled = [argument.format(**places) for argument in arguments]
    ran = [
        subprocess.run([sys.executable, "-m", module, *filled], capture_output=True, text=True, check=False)
        for module in ("service.start", "service.cli")
    ]
    assert ran[0].returncode == ran[1].returncode == status
    assert ran[0].stdout == ran[1].stdout
    assert ran[0].stderr.replace("service.start", "service.cli") == ran[1].stderr


def test_a_bug_is_told_and_is_no_incident(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from service import start

    def fail(_: ReplayRequest) -> int:
        raise RuntimeError("of ours")

    monkeypatch.setattr(replay_command, "run_replay", fail)
    monkeypatch.setattr(sys, "argv", ["firstfault", "replay", "a.csv"])
    with pytest.raises(SystemExit) as ended:
        start.main()
    assert ended.value.code == 3
    assert "this is a bug in firstfault" in capsys.readouterr().err
