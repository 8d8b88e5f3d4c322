"""Dataclasses with deferred methods behave as those of the standard library."""

from __future__ import annotations

import dataclasses
import os
import pickle
import subprocess
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest

from service import quick_classes

SOURCE = '''
from __future__ import annotations
from dataclasses import dataclass, field
from typing import ClassVar

@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Checked."""
    least: int
    words: tuple[str, ...] = ()
    def __post_init__(self):
        if self.least < 0:
            raise ValueError(f"least must be >= 0, got {self.least}")

@dataclass(frozen=True, slots=True)
class Pair:
    """Two, and one that does not count."""
    left: int
    right: float = 2.0
    note: str = field(default="", compare=False, repr=False)
    @property
    def both(self):
        return self.left + self.right

@dataclass(slots=True)
class Tally:
    """It changes."""
    of: str
    seen: list[int] = field(default_factory=list)
    made: int = field(init=False, default=0)

@dataclass(frozen=True, slots=True, eq=False)
class Alone:
    """Equal to itself alone."""
    value: int

@dataclass(frozen=True, slots=True)
class Counted:
    """With a number of its class."""
    most: ClassVar[int] = 3
    value: int = 1
'''


@pytest.fixture
def deferred() -> Iterator[types.ModuleType]:
    """The classes of `SOURCE` as a module of ours, made while methods are deferred."""
    standard = dataclasses.dataclass
    quick_classes.defer_methods()
    try:
        module = _module("service.quick_example")
    finally:
        dataclasses.dataclass = standard
    yield module
    del sys.modules[module.__name__]


@pytest.fixture
def standard() -> Iterator[types.ModuleType]:
    """The same as the standard library makes them."""
    module = _module("service.standard_example")
    yield module
    del sys.modules[module.__name__]


def _module(name: str) -> types.ModuleType:
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(SOURCE, name, "exec", dont_inherit=True), module.__dict__)  # noqa: S102  # the source above
    return module


def _told(make: Any) -> object:
    """What a call gives, or the words and the type of its error."""
    try:
        return make()
    except Exception as error:  # whatever it is, the other must raise it too
        return type(error), str(error)


CALLS: dict[str, Any] = {
    "settings": lambda m: repr(m.Settings(least=1, words=("a",))),
    "default": lambda m: m.Settings(least=1).words,
    "check": lambda m: m.Settings(least=-1),
    "missing": lambda m: m.Settings(),
    "unknown": lambda m: m.Settings(least=1, most=2),
    "by place": lambda m: m.Settings(1),
    "twice": lambda m: m.Pair(1, left=2),
    "too many": lambda m: m.Pair(1, 2.0, "", 4),
    "pair": lambda m: (repr(m.Pair(1)), m.Pair(1).both, m.Pair(1, 3.0, "x").note),
    "equal": lambda m: m.Pair(1, note="a") == m.Pair(1, note="b"),
    "unequal": lambda m: (m.Pair(1) == m.Pair(2), m.Pair(1) == 1, m.Pair(1) != m.Pair(2)),
    "hash": lambda m: hash(m.Pair(1, note="a")) == hash((1, 2.0)),
    "set": lambda m: setattr(m.Pair(1), "left", 2),
    "delete": lambda m: delattr(m.Pair(1), "left"),
    "replaced": lambda m: repr(dataclasses.replace(m.Pair(1), right=5.0)),
    "plain": lambda m: dataclasses.asdict(m.Pair(1)),
    "pickled": lambda m: repr(pickle.loads(pickle.dumps(m.Pair(1, 4.0)))),  # noqa: S301  # made just now
    "tally": lambda m: (
        repr(m.Tally("a")),
        m.Tally("a").seen is m.Tally("a").seen,
        m.Tally("a") == m.Tally("a"),
    ),
    "no hash": lambda m: hash(m.Tally("a")),
    "not given": lambda m: m.Tally("a", made=1),
    "alone": lambda m: (m.Alone(1) == m.Alone(1), len({m.Alone(1), m.Alone(1)})),
    "class": lambda m: (m.Counted.most, repr(m.Counted())),
    "slots": lambda m: (m.Pair.__slots__, m.Pair.__match_args__, m.Pair.__qualname__, m.Pair.__doc__),
    "no room": lambda m: setattr(m.Tally("a"), "other", 2),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_deferred_class_does_what_one_of_the_standard_library_does(
    name: str, deferred: types.ModuleType, standard: types.ModuleType
) -> None:
    expected = _told(lambda: CALLS[name](standard))

    seen = [_told(lambda: CALLS[name](deferred)) for _ in range(quick_classes._PLAIN_CALLS + 2)]

    assert seen == [expected] * len(seen)


def test_methods_are_made_when_they_are_first_called(deferred: types.ModuleType) -> None:
    pair = deferred.Pair(1)
    before = deferred.Pair.__repr__

    assert repr(pair) == "Pair(left=1, right=2.0)"
    assert deferred.Pair.__repr__ is not before
    assert deferred.Pair.__eq__.__qualname__ != "Pair.__eq__"  # nobody compared


def test_classes_of_others_stay_with_the_standard_library() -> None:
    standard = dataclasses.dataclass
    quick_classes.defer_methods()
    try:
        made = dataclasses.make_dataclass("Other", ["x"], slots=True, frozen=True)
    finally:
        dataclasses.dataclass = standard

    assert made.__repr__.__qualname__ != quick_classes._at_first_call.__qualname__ + ".<locals>.method"


def test_a_replay_with_deferred_classes_says_what_one_without_says(tmp_path: Any) -> None:
    log = tmp_path / "run.csv"
    rows = [f"{step},{'nan' if step > 60 else 2.0 + step % 7 / 10},1.5" for step in range(80)]
    log.write_text("step,loss,grad_norm\n" + "\n".join(rows) + "\n", encoding="utf-8")
    asked = ["replay", str(log), "--json"]

    told = [
        subprocess.run(
            [sys.executable, "-m", module, *asked], capture_output=True, check=False, env=os.environ
        )
        for module in ("service.start", "service.cli")
    ]

    assert told[0].returncode == 1
    assert (told[0].stdout, told[0].stderr) == (told[1].stdout, told[1].stderr)
