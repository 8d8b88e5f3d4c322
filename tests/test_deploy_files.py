"""Unit, container, compose and proxy files: what they run starts, and what they name exists."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import typer
from ruamel.yaml import YAML

from service.cli import app
from service.config import ENVIRONMENT

from .test_serve import QUICK, environment, wait_until

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
INSTALLED = "/opt/firstfault/bin/firstfault"


class Unit(configparser.ConfigParser):
    """A unit file; names of its keys keep their case, and the last of several is kept."""

    def __init__(self) -> None:
        super().__init__(strict=False, interpolation=None, comment_prefixes=("#",))
        self.read_string((DEPLOY / "firstfault.service").read_text(encoding="utf-8"))

    def optionxform(self, optionstr: str) -> str:
        return optionstr


def instructions() -> list[tuple[str, str]]:
    """The container file's instructions with their arguments, continued lines joined."""
    text = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    joined = re.sub(r"\\\n\s*", " ", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE))
    found = [line.partition(" ") for line in joined.splitlines() if line.strip()]
    return [(name, rest.strip()) for name, _, rest in found]


def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = YAML(typ="safe").load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    return loaded


def check_command(arguments: list[str]) -> None:
    """Parse a command line of ours without running it; what it cannot be raises."""
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        name, *arguments = arguments
        command = command.commands[name]
    command.make_context(command.name, arguments)


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """What the unit runs, with this Python and folders of a test; and its address."""
    folder = tmp_path_factory.mktemp("unit")
    (folder / "firstfault.toml").write_text(QUICK + "port = 0\n")
    line = Unit()["Service"]["ExecStart"]
    for old, new in (
        (INSTALLED, f"{sys.executable} -m firstfault"),
        ("/var/lib/firstfault", str(folder / "data")),
        ("/etc/firstfault", str(folder)),
    ):
        assert old in line
        line = line.replace(old, new)
    process = subprocess.Popen(
        shlex.split(line), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment()
    )
    try:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found
        yield process, found[0]
    finally:
        process.kill()
        process.communicate()


def test_what_the_unit_and_the_container_run_answers_and_ends_when_told(
    started: tuple[subprocess.Popen[str], str],
) -> None:
    process, url = started
    wait_until(lambda: httpx2.get(f"{url}/healthz").status_code == 200)
    (health,) = [rest for name, rest in instructions() if name == "HEALTHCHECK"]
    program, *arguments = json.loads(health[health.index("CMD") + 3 :])
    assert program == "python"
    checked = [one.replace("http://127.0.0.1:8000", url) for one in arguments]
    assert checked != arguments
    assert subprocess.run([sys.executable, *checked], check=False, timeout=30).returncode == 0
    began_s = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    assert time.monotonic() - began_s < float(Unit()["Service"]["TimeoutStopSec"])
    assert subprocess.run([sys.executable, *checked], stderr=subprocess.DEVNULL, check=False).returncode != 0


def test_the_unit_is_hardened_and_is_not_restarted_with_settings_that_cannot_be() -> None:
    service = Unit()["Service"]
    for key in ("NoNewPrivileges", "ProtectHome", "PrivateTmp", "PrivateDevices", "RestrictSUIDSGID"):
        assert service[key] == "yes"
    assert (service["ProtectSystem"], service["User"]) == ("strict", "firstfault")
    assert service["StateDirectory"] in service["ExecStart"]
    assert service["RestartPreventExitStatus"] == "2"


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    text = (DEPLOY / "firstfault.service").read_text(encoding="utf-8")
    (tmp_path / "firstfault.service").write_text(text.replace(INSTALLED, sys.executable))
    done = subprocess.run(
        [program, "verify", "--man=no", str(tmp_path / "firstfault.service")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_container_is_built_of_all_that_is_installed_and_runs_without_rights() -> None:
    found = instructions()
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]["packages"]
    wanted = {name.rstrip("*.") for name in packages["find"]["include"]}
    copied = {rest.split()[0] for name, rest in found if name == "COPY" and "--from" not in rest}
    assert wanted <= copied
    assert all((ROOT / name).exists() for name in copied - {"pyproject.toml"})
    stages = [at for at, (name, _) in enumerate(found) if name == "FROM"]
    assert len(stages) == 2
    final = dict(found[stages[1] :])
    assert (final["USER"], final["VOLUME"], final["STOPSIGNAL"]) == ("firstfault", "/data", "SIGTERM")
    assert not any("torch" in rest for _, rest in found)


def test_every_command_in_the_files_can_be() -> None:
    final = dict(instructions())
    assert json.loads(final["ENTRYPOINT"]) == ["firstfault"]
    check_command(json.loads(final["CMD"]))
    check_command(shlex.split(Unit()["Service"]["ExecStart"])[1:])
    commands = [one["command"] for one in compose()["services"].values() if "command" in one]
    assert len(commands) == 2
    for command in commands:
        check_command(command)
    with pytest.raises(Exception, match="--dta"):
        check_command(["serve", "--dta", "x"])


def test_compose_names_only_what_it_declares_and_variables_that_exist() -> None:
    document = compose()
    services = document["services"]
    assert set(services) == {"kafka", "postgres", "serve", "worker", "token"}
    for one in services.values():
        volumes = {volume.partition(":")[0] for volume in one.get("volumes", ())}
        assert volumes <= document["volumes"].keys()
        assert set(one.get("secrets", ())) <= document["secrets"].keys()
        for name, condition in one.get("depends_on", {}).items():
            assert condition == {"condition": "service_healthy"}
            assert "test" in services[name]["healthcheck"]
    for name in ("serve", "worker", "token"):
        named = {one.removesuffix("_FILE") for one in services[name]["environment"]}
        assert named <= ENVIRONMENT.keys()
        assert (services[name]["read_only"], services[name]["cap_drop"]) == (True, ["ALL"])
    assert all(port.startswith("127.0.0.1:") for port in services["serve"]["ports"])


def test_the_proxies_set_the_address_of_the_client_and_do_not_buffer_streams() -> None:
    nginx = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    locations = re.findall(r"location \S+ \{(.*?)\n    \}", nginx, re.DOTALL)
    assert len(locations) == 2
    for location in locations:
        assert "proxy_set_header X-Forwarded-For $remote_addr;" in location
        assert "$proxy_add_x_forwarded_for" not in location
    assert "proxy_buffering off;" in locations[1]
    caddy = (DEPLOY / "Caddyfile").read_text(encoding="utf-8")
    assert "header_up X-Forwarded-For {remote_host}" in caddy
    assert "flush_interval -1" in caddy
