"""What the project says of itself is true: the README, the package, what an import costs."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import fields
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

from detectors.registry import make_detectors
from firstfault import ProbeConfig
from firstfault.emitters import EmitterConfig
from service.config import ENVIRONMENT, setting_keys
from service.migrations import NEWEST

from .probe_builders import Service, lines_of

ROOT = Path(__file__).parent.parent
PACKAGES = ("firstfault", "ingest", "detectors", "service")
STEPS = range(1, NEWEST + 1)
SCHEMA = {f"service/schema/{number:04d}_{way}.sql" for number in STEPS for way in ("up", "down")}
PAGE = {str(path.relative_to(ROOT)) for path in (ROOT / "service" / "page" / "static").iterdir()}
DATA_FILES = {
    "detectors/verdict.schema.json",
    "service/api/examples.json",
    "service/local_kafka.pom.xml",
    "service/report.css",
    *SCHEMA,
    *PAGE,
}

MAX_FUNCTION_LINES = 40
"""Of a function without its docstring."""
LONG_HEADS = re.compile(r"^ *import typer$|^# ruff: noqa: PLR0917$", re.MULTILINE)
"""What stands in files of commands, and of loops that are compiled. Their functions are measured without
their arguments, which name the options one by one, or the state array by array."""
MAX_LINES, MAX_LINES_OF_TESTS = 300, 500
"""A file of tests is a list of claims, of which each is read by itself."""


@pytest.fixture(scope="module")
def readme() -> str:
    return (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def settings_page() -> str:
    return (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def training_page() -> str:
    return (ROOT / "docs" / "training.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The distribution as it would be uploaded, built from a copy so that the tree stays clean."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in (*PACKAGES, "tests", "bench", "sample_logs"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.part"))
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(source)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = out.glob("*.whl")
    return path


def commands() -> Iterator[tuple[str, Any]]:
    """Every command as a person types it, those of groups included, and what typer made of it."""
    import typer

    from service.cli import app

    def walk(command: Any, path: str) -> Iterator[tuple[str, Any]]:
        inner = getattr(command, "commands", None)
        if inner is None:
            yield path, command
        else:
            for name, one in inner.items():
                yield from walk(one, f"{path} {name}")

    return walk(typer.main.get_command(app), "firstfault")


def sources() -> Iterator[Path]:
    for package in (*PACKAGES, "tests", "bench"):
        yield from sorted((ROOT / package).rglob("*.py"))


def lengths(source: str) -> Iterator[tuple[str, int]]:
    """The name of each function and how many lines it has."""
    has_long_heads = LONG_HEADS.search(source) is not None
    for one in ast.walk(ast.parse(source)):
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
            assert one.end_lineno is not None
            said = one.body[0] if ast.get_docstring(one) is not None else None
            spared = (said.end_lineno or said.lineno) - said.lineno + 1 if said is not None else 0
            first = one.body[0].lineno if has_long_heads else one.lineno
            yield one.name, one.end_lineno - first + 1 - spared


def test_no_file_is_too_long_to_be_read_at_once() -> None:
    found = {str(path.relative_to(ROOT)): len(path.read_text("utf-8").splitlines()) for path in sources()}
    assert len(found) > 700
    limits = {name: MAX_LINES_OF_TESTS if name.startswith("tests/") else MAX_LINES for name in found}
    assert [(name, lines) for name, lines in found.items() if lines > limits[name]] == []


def test_no_function_is_too_long_to_be_read_at_once() -> None:
    found = [
        (str(path.relative_to(ROOT)), *one) for path in sources() for one in lengths(path.read_text("utf-8"))
    ]
    assert len(found) > 5000
    assert [one for one in found if one[-1] > MAX_FUNCTION_LINES] == []


def test_the_length_of_a_function_is_that_of_what_it_does() -> None:
    assert list(lengths('def f(\n    a,\n):\n    """Say.\n\n    More.\n    """\n    return a\n')) == [
        ("f", 4)
    ]
    assert list(lengths("import typer\n\ndef f(\n    a,\n):\n    return a\n")) == [("f", 1)]


def test_no_test_stands_where_it_is_not_collected() -> None:
    forgotten = [
        str(path.relative_to(ROOT))
        for path in sources()
        if not path.name.startswith("test_")
        and re.search(r"^(    )?def test_", path.read_text("utf-8"), re.MULTILINE)
    ]
    assert forgotten == []
    nested = [path for path in sources() if path.name.startswith("test_") and path.parent != ROOT / "tests"]
    assert nested == []


def test_every_command_is_in_the_readme(readme: str) -> None:
    assert "firstfault replay" in dict(commands())
    assert [command for command, _ in commands() if command not in readme] == []


def test_every_option_of_a_command_is_explained_by_it_and_on_a_page(readme: str) -> None:
    told = readme + "".join(path.read_text("utf-8") for path in sorted((ROOT / "docs").rglob("*.md")))
    options = [
        (command, option, one.help)
        for command, made in commands()
        for one in made.params
        if not getattr(one, "hidden", False)
        for option in one.opts
        if option.startswith("--")
    ]
    assert len(options) > 80
    assert [(command, option) for command, option, words in options if not words] == []
    assert [
        (command, option) for command, option, _ in options if not re.search(rf"{option}(?![\w-])", told)
    ] == []


def test_every_setting_has_its_line_on_the_page_of_settings(settings_page: str) -> None:
    named = set(re.findall(r"^\| `([a-z_.]+)` \|", settings_page, re.MULTILINE))
    assert len(setting_keys()) > 10
    assert [key for key in setting_keys() if key not in named] == []
    assert [variable for variable in ENVIRONMENT if variable not in settings_page] == []


@pytest.mark.torch
def test_every_setting_of_the_probe_is_on_the_page_of_training_with_its_default(training_page: str) -> None:
    pytest.importorskip("torch")
    from firstfault.torch_metrics import WatchConfig

    told = [
        f"| `{type(owner).__name__}.{one.name}` | `{getattr(owner, one.name)}` | "
        for owner in (ProbeConfig(), EmitterConfig(), WatchConfig())
        for one in fields(owner)
        if one.name != "emitter"
    ]
    assert len(told) > 30
    assert [line for line in told if line not in training_page] == []


def test_every_detector_is_in_the_readme(readme: str) -> None:
    assert [detector.name for detector in make_detectors() if f"`{detector.name}`" not in readme] == []


def test_every_endpoint_is_in_the_readme(readme: str, tmp_path: Path) -> None:
    from service.api.app import make_app
    from service.database import Database

    database = Database(tmp_path)
    paths = make_app(database).openapi()["paths"]
    database.close()
    endpoints = [f"{method.upper()} {path}" for path, item in paths.items() for method in item]
    assert "GET /v1/runs/{run_id}/verdict" in endpoints
    assert [one for one in endpoints if f"`{one}`" not in readme] == []


def anchors_of(page: Path) -> set[str]:
    """What may stand behind the # of a link to a page: its headings, as forges write them."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    heads = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_every_link_of_a_page_leads_to_something() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    broken = []
    for page in pages:
        for place, anchor in re.findall(r"\]\(([^)#\s:]*)(?:#([^)\s]*))?\)", page.read_text("utf-8")):
            target = (page.parent / place).resolve() if place else page
            is_there = target.exists() and (not anchor or anchor in anchors_of(target))
            broken += [] if is_there else [f"{page.name}: {place}#{anchor}"]
    assert len(pages) > 20
    assert broken == []


def test_every_target_of_the_makefile_is_explained() -> None:
    listed = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for target in ("demo", "test", "lint", "bench", "bench-quality", "kafka"):
        assert f"make {target} " in listed


def test_the_wheel_holds_our_packages_and_two_demo_logs_and_nothing_else(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    sources = {str(path.relative_to(ROOT)) for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    demo_logs = {name for name in names if name.startswith("service/demo_logs/")}
    typed = {f"{package}/py.typed" for package in PACKAGES}
    assert names == sources | typed | DATA_FILES | demo_logs
    assert len([name for name in demo_logs if ".jsonl" in name]) == 2


def test_a_bare_import_needs_the_standard_library_alone(wheel: Path) -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import firstfault\n"
        "ours = {'firstfault', '__main__', 'sitecustomize'}\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "print(sorted(loaded - ours - set(sys.stdlib_module_names)))\n"
        "print(firstfault.__file__)\n"
    )
    # -I and -S: no environment, no site-packages, so nothing but the wheel can be found
    command = [sys.executable, "-I", "-S", "-c", program, str(wheel)]
    printed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert printed.returncode == 0, printed.stderr
    others, where = printed.stdout.splitlines()
    assert others == "[]"
    assert where.startswith(str(wheel))


def test_the_bare_wheel_is_all_that_a_trainer_needs(wheel: Path, tmp_path: Path) -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import firstfault\n"
        "for sink in sys.argv[2:]:\n"
        "    with firstfault.Probe(run='r', rank=0, sink=sink) as probe:\n"
        "        for _ in range(20):\n"
        "            probe.step(float('nan'))\n"
        "    print(probe.errors, probe.counts.dropped)\n"
    )
    path = tmp_path / "run.jsonl"
    with Service() as service:
        command = [sys.executable, "-I", "-S", "-c", program, str(wheel), str(path), service.url]
        printed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (printed.returncode, printed.stdout, printed.stderr) == (0, "0 0\n0 0\n", "")
    assert [line["iteration"] for line in lines_of(path) if line.get("loss") == "NaN"] == list(range(20))
    assert service.iterations() == list(range(20))


def test_the_packages_belong_to_the_distribution_of_this_name() -> None:
    owners = packages_distributions()
    assert [package for package in PACKAGES if set(owners.get(package, [])) != {"firstfault"}] == []


def test_the_version_is_the_newest_in_the_changelog() -> None:
    from importlib.metadata import version

    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] == version("firstfault")
