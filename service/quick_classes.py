"""Dataclasses whose methods are written when they are first called, for a command that is over in a moment.

The standard library writes and compiles up to six functions for each dataclass when its module is imported, a
millisecond a class. A replay meets some 180 classes, makes one object each of most of those that it makes any
of, and compares and prints none. `defer_methods`, called before anything else of ours is imported, takes the
place of `dataclasses.dataclass` for the classes of our packages: fields, slots, defaults and pattern matching
are as ever, and each method is made by the standard library at its first call. Only ``inspect.signature`` of
a class that nobody has called yet says less. A process that stays takes the classes as they come.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

_OURS = ("firstfault.", "ingest.", "detectors.", "service.")
_KNOWN = {"frozen", "slots", "kw_only", "eq"}
"""Options that are understood here."""
_PLAIN_CALLS = 8
"""Objects of a class made by walking over its fields; from the next one on a function written for the class
pays, which costs as much as some 50 of these."""
_STANDARD = dataclasses.dataclass
_OF_A_DICT = ("__dict__", "__weakref__")
"""What a class without slots has, and one made from its names must not."""


def defer_methods() -> None:
    """From now on `dataclasses.dataclass` defers the methods of classes of ours."""
    dataclasses.dataclass = _dataclass


def _dataclass(cls: Any = None, /, **options: Any) -> Any:
    if cls is not None:
        return _STANDARD(cls, **options)

    def decorate(cls: type) -> type:
        return _deferred(cls, options) if _is_plain(cls, options) else _STANDARD(**options)(cls)

    return decorate


def _is_plain(cls: type, options: Mapping[str, Any]) -> bool:
    """Whether all that is asked for is understood; what is not stays with the standard library."""
    named = cls.__dict__
    is_own = cls.__module__.startswith(_OURS) and cls.__bases__ == (object,) and type(cls) is type
    told = [str(one) for one in cls.__annotations__.values()]
    is_fields = not any(word in one for one in told for word in ("ClassVar", "InitVar"))
    is_given = all(one.init for one in named.values() if isinstance(one, dataclasses.Field))
    methods = {"__init__", "__eq__", "__hash__", "__repr__", "__setattr__", "__slots__"}
    return (
        is_own
        and is_fields
        and is_given
        and bool(options.get("slots"))
        and options.keys() <= _KNOWN
        and bool(named.get("__doc__"))  # else its signature is to be found out at once
        and not methods & named.keys()
    )


def _deferred(cls: type, options: Mapping[str, Any]) -> type:
    """The class with its fields and slots, and methods that are written when they are called."""
    _STANDARD(init=False, repr=False, eq=False, kw_only=options.get("kw_only", False))(cls)
    is_frozen, has_equality = options.get("frozen", False), options.get("eq", True)
    names = tuple(one.name for one in dataclasses.fields(cls))
    named = {name: value for name, value in vars(cls).items() if name not in {*names, *_OF_A_DICT}}
    named |= {"__slots__": names, "__qualname__": cls.__qualname__}
    if is_frozen:
        named |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
        named |= {"__getstate__": _state_of, "__setstate__": _set_state}
    if has_equality and not is_frozen:
        named["__hash__"] = None  # as of every class whose objects are compared and change
    made = type(cls.__name__, (), named)
    parameters = vars(made)["__dataclass_params__"]  # what a class that inherits from it is checked against
    parameters.init, parameters.repr, parameters.eq, parameters.frozen = True, True, has_equality, is_frozen
    twin = _Twin(made, options)
    deferred = {"__init__": _first_objects(twin), "__repr__": _at_first_call(twin, "__repr__")}
    if has_equality:
        deferred["__eq__"] = _at_first_call(twin, "__eq__")
        if is_frozen:
            deferred["__hash__"] = _at_first_call(twin, "__hash__")
    for name, method in deferred.items():
        setattr(made, name, method)
    return made


class _Twin:
    """What the standard library makes of the same fields, to take methods from."""

    def __init__(self, cls: type, options: Mapping[str, Any]) -> None:
        self.cls = cls
        self.options = options
        self.fields: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(cls)
        self.positional = [one.name for one in self.fields if not one.kw_only]
        self.is_checked = hasattr(cls, "__post_init__")

    def method(self, name: str) -> Callable[..., Any]:
        """The method of that name, which the class has from now on."""
        named: dict[str, Any] = {one.name: one for one in self.fields}
        named |= {
            "__annotations__": self.cls.__annotations__,
            "__module__": self.cls.__module__,
            "__doc__": "-",  # without one its signature would be looked for
        }
        if self.is_checked:
            named["__post_init__"] = None  # a method written here calls that of the object
        asked = {"init": name == "__init__", "repr": name == "__repr__", "eq": name in {"__eq__", "__hash__"}}
        twin: type = _STANDARD(**{**self.options, **asked, "slots": False})(
            type(self.cls.__name__, (), named)
        )
        method: Callable[..., Any] = getattr(twin, name)
        method.__qualname__ = f"{self.cls.__qualname__}.{name}"
        setattr(self.cls, name, method)
        return method

    def fill(self, made: object, args: tuple[Any, ...], named: Mapping[str, Any]) -> bool:
        """Give an object its values; False where these are not what its fields ask for."""
        given = {**dict(zip(self.positional, args, strict=False)), **named}
        if len(given) != len(args) + len(named):
            return False
        for one in self.fields:
            if one.name in given:
                value = given.pop(one.name)
            elif one.default is not dataclasses.MISSING:
                value = one.default
            elif one.default_factory is not dataclasses.MISSING:
                value = one.default_factory()
            else:
                return False
            object.__setattr__(made, one.name, value)
        return not given


def _first_objects(twin: _Twin) -> Callable[..., None]:
    """``__init__`` for a class of which few objects are made, or none."""
    calls = 0

    def make(self: Any, *args: Any, **named: Any) -> None:
        nonlocal calls
        calls += 1
        if calls > _PLAIN_CALLS or not twin.fill(self, args, named):
            twin.method("__init__")(self, *args, **named)  # which says what is wrong with its arguments
        elif twin.is_checked:
            self.__post_init__()

    return make


def _at_first_call(twin: _Twin, name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any) -> Any:
        return twin.method(name)(self, *args)

    return method


def _refuse_to_set(_self: object, name: str, _value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(_self: object, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state_of(self: Any) -> list[Any]:
    return [getattr(self, one.name) for one in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for one, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)  # a frozen object sets nothing itself
