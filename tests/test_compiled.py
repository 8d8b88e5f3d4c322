"""Functions in machine code: what is compiled once is loaded by others, and never what is not the same."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from detectors import drift_fold, drift_state
from detectors.kernels import Array
from ingest import machine_code
from ingest.compiled import Compiled, cache_folder
from ingest.machine_code import CompiledFunctionError, MachineCode

STEP = 2
WEIGHTS = np.array([1.0, 0.5])


def advance(place: Array) -> None:
    place[0] += STEP


def weigh(values: Array, place: Array, total: Array) -> int:
    while place[0] < len(values):
        total[0] += values[place[0]] * WEIGHTS[place[0] % 4 // 2]
        advance(place)
    return 7


def root(values: Array) -> int:
    return int(math.pow(values[0], 0.5) + math.sqrt(values[0]) - math.sqrt(values[0]))


def divide(values: Array) -> int:
    return int(1.0 / values[0])


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "firstfault" / "compiled"


def arguments() -> tuple[Array, Array, Array]:
    return np.arange(1.0, 6.0), np.zeros(1, np.int64), np.zeros(1)


def with_globals(function: Callable[..., object], **changed: object) -> types.FunctionType:
    """The function as another module would hold it."""
    assert isinstance(function, types.FunctionType)
    other = types.FunctionType(function.__code__, {**function.__globals__, **changed}, function.__name__)
    other.__module__ = function.__module__
    return other


def test_a_compiled_function_gives_and_changes_what_the_plain_one_does() -> None:
    plain, compiled = arguments(), arguments()
    assert Compiled(weigh, [advance])(*compiled) == weigh(*plain)
    for one, other in zip(plain, compiled, strict=True):
        assert one.tobytes() == other.tobytes()


def test_a_long_call_which_lets_other_threads_run_gives_what_the_plain_one_does() -> None:
    values = np.arange(float(machine_code._LONG_FROM_ELEMENTS))
    place, total = np.zeros(1, np.int64), np.zeros(1)

    result = Compiled(weigh, [advance])(values, place, total)

    plain_place, plain_total = np.zeros(1, np.int64), np.zeros(1)
    assert result == weigh(values, plain_place, plain_total)
    assert (place == plain_place).all()
    assert total.tobytes() == plain_total.tobytes()


def test_what_one_process_compiled_another_calls_without_numba(cache: Path) -> None:
    Compiled(weigh, [advance])(*arguments())
    script = (
        "import sys; from tests.test_compiled import *; args = arguments();"
        "one = Compiled(weigh, [advance]); assert one.is_kept(args); assert one(*args) == 7;"
        "print(args[2][0], 'numba' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["7.5", "False"]


def test_what_was_not_used_for_long_or_exceeds_the_number_is_removed(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.mkdir(parents=True)
    for at, days in enumerate((200, 3, 2, 1)):
        path = cache / f"old-{at}.o"
        path.write_bytes(b"")
        os.utime(path, (path.stat().st_mtime - 86_400 * days,) * 2)
    (cache / "notes.txt").write_text("not ours")
    Compiled(weigh, [advance])(*arguments())
    assert sorted(path.name for path in cache.glob("old*.o")) == ["old-1.o", "old-2.o", "old-3.o"]
    monkeypatch.setattr(machine_code, "_MOST_FILES", 3)
    Compiled(root)(np.full(1, 9.0))
    assert sorted(path.name[:5] for path in cache.glob("*.o")) == ["old-3", "root-", "weigh"]
    assert (cache / "notes.txt").exists()


def test_a_use_is_noted_so_that_what_serves_stays(cache: Path) -> None:
    Compiled(weigh, [advance])(*arguments())
    (path,) = cache.glob("*.o")
    os.utime(path, (1.0, 1.0))
    Compiled(weigh, [advance])(*arguments())
    assert path.stat().st_mtime > 1e9


def test_where_numba_does_not_tell_the_machine_code_it_calls_the_function_itself(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed(_: object) -> MachineCode:
        raise AttributeError("'CPUCodeLibrary' object has no attribute '_final_module'")

    monkeypatch.setattr(machine_code, "_told", changed)
    plain, compiled, again = arguments(), arguments(), arguments()
    one = Compiled(weigh, [advance])
    assert one(*compiled) == one.bound(again)() == weigh(*plain)
    for expected, other, third in zip(plain, compiled, again, strict=True):
        assert expected.tobytes() == other.tobytes() == third.tobytes()
    assert not list(cache.glob("*.o"))


def test_a_function_of_the_mathematical_library_is_found_by_the_first_code_of_a_process() -> None:
    Compiled(root)(np.full(1, 9.0))
    script = (
        "from tests.test_compiled import *; one = Compiled(root); args = (np.full(1, 16.0),);"
        "assert one.is_kept(args); print(one(*args), one.is_ready)"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["4", "True"]


def test_another_constant_type_or_function_is_another_file() -> None:
    args = arguments()
    wider = with_globals(advance, STEP=4)
    single = (args[0].astype(np.float32), *args[1:])
    paths = {
        Compiled(weigh, [advance])._path(args),
        Compiled(with_globals(weigh, advance=wider), [wider])._path(args),
        Compiled(with_globals(weigh, WEIGHTS=np.ones(2)), [advance])._path(args),
        Compiled(weigh, [advance])._path(single),
        Compiled(weigh, [advance], inlines=True)._path(args),
    }
    assert len(paths) == 5


def test_what_only_stands_elsewhere_is_the_same_file() -> None:
    moved = types.FunctionType(weigh.__code__.replace(co_firstlineno=9), weigh.__globals__, "weigh")
    assert Compiled(moved, [advance])._path(arguments()) == Compiled(weigh, [advance])._path(arguments())


def test_parts_that_mean_two_things_by_one_name_are_refused() -> None:
    other = with_globals(advance, WEIGHTS=np.ones(3), STEP=2)
    uses = with_globals(lambda place: place[0] * STEP, STEP=3)
    with pytest.raises(ValueError, match="STEP must mean one thing in all parts, is 2 and, in <lambda>, 3"):
        Compiled(with_globals(weigh, advance=other), [other, uses])


def test_a_function_that_is_called_and_no_part_is_refused() -> None:
    with pytest.raises(ValueError, match="weigh calls advance, which must be among its parts"):
        Compiled(weigh)


def test_a_constant_that_is_no_number_is_refused() -> None:
    with pytest.raises(TypeError, match="must be numbers, got 'two'"):
        Compiled(with_globals(divide, int="two"))._path(arguments())


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: data[:40], lambda _: b""])
def test_a_damaged_file_is_compiled_again(damage: Callable[[bytes], bytes], cache: Path) -> None:
    Compiled(divide)(np.ones(1))
    (kept,) = cache.glob("divide-*.o")
    kept.write_bytes(damage(kept.read_bytes()))
    assert machine_code.read(kept) is None
    assert Compiled(divide)(np.full(1, 0.25)) == 4
    assert machine_code.read(kept) is not None


def test_an_error_inside_is_a_bug_and_no_number() -> None:
    with pytest.raises(CompiledFunctionError, match="ended with status"):
        Compiled(divide)(np.zeros(1))


def test_code_that_calls_what_this_process_lacks_is_not_loaded() -> None:
    with pytest.raises(CompiledFunctionError, match="calls no_such_function, which this process lacks"):
        machine_code.load(MachineCode("f", ("no_such_function", "sqrt"), b""), [])


def test_arrays_of_other_types_or_apart_from_each_other_are_refused() -> None:
    compiled = Compiled(divide)
    compiled(np.ones(1))
    with pytest.raises(TypeError, match="was compiled for"):
        compiled(np.ones(1, np.float32))
    with pytest.raises(ValueError, match="must be contiguous"):
        compiled(np.ones(4)[::2])


def test_a_home_that_cannot_be_written_leads_to_a_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("no folder can be made below a file")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocker))
    chosen = cache_folder()
    assert chosen.is_dir() and blocker not in chosen.parents
    assert cache_folder() == chosen


def test_machine_code_in_a_folder_of_somebody_else_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert tmp_path in cache_folder().parents
    somebody_else = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: somebody_else)
    assert tmp_path not in cache_folder().parents


def test_a_fold_of_many_parts_has_no_constant_of_two_meanings() -> None:
    state = drift_state.make_state()
    fold = Compiled(drift_fold.FOLD.function, drift_fold.FOLD.parts)
    assert fold._path([np.zeros(1), *state]) != Compiled(weigh, [advance])._path(arguments())
