"""Plain functions as machine code: compiled once by numba, kept in a file, loaded again without numba.

To load numba takes as long as to judge a large table, and a file of machine code a hundredth of that. What a
file is kept under says everything that went into it: the bytecode of the functions, the constants that they
use, the types of the arrays, the processor, and the compiler.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from .machine_code import Dispatched, Entry

# Any: arrays of any type, which the functions tell apart.
Array = NDArray[Any]

_CONSTANTS = (bool, int, float, np.bool_, np.integer, np.floating)


class Compiled:
    """A function of arrays, one or more of which it changes, that gives an integer; in machine code.

    ``parts`` are the functions it calls, each after those that it calls itself; the modules keep the plain
    ones. ``inlines``: they are put into it, since a call that hands on arrays takes as long as reading a
    number of a log. All arrays are contiguous, and always of the same types.

    Raises:
        ValueError: two of the functions mean different things by one name.
    """

    def __init__(
        self, function: Callable[..., int], parts: Sequence[Callable[..., Any]] = (), *, inlines: bool = False
    ) -> None:
        self.functions = [as_function(one) for one in (*parts, function)]
        self.inlines = inlines
        self.constants = _constants(self.functions)
        self._entry: Entry | Dispatched | None = None
        self._file: Path | None = None
        self._loading = threading.Lock()

    def __call__(self, *arrays: Array) -> int:
        """Call it, which compiles it where no process did so before."""
        return self._ready(arrays)(arrays)

    def bound(self, arrays: Sequence[Array]) -> Callable[[], int]:
        """The same for calling it again and again with these arrays."""
        return self._ready(arrays).bound(arrays)

    @property
    def is_ready(self) -> bool:
        """Whether it was loaded, or compiled, in this process."""
        return self._entry is not None

    def is_kept(self, arrays: Sequence[Array]) -> bool:
        """Whether some process compiled it for such arrays and kept it, so that loading it takes a moment."""
        return self.is_ready or self._path(arrays).exists()

    def _ready(self, arrays: Sequence[Array]) -> Entry | Dispatched:
        with self._loading:  # once, whatever number of threads call it first
            if self._entry is None:
                self._entry = self._load(arrays)
            return self._entry

    def _load(self, arrays: Sequence[Array]) -> Entry | Dispatched:
        from .machine_code import Dispatched, compile_functions, load, read, write

        path = self._path(arrays)
        code = read(path)
        if code is None:
            made = compile_functions(self.functions, self.constants, arrays, inlines=self.inlines)
            if isinstance(made, Dispatched):
                return made
            code = made
            write(path, code)
        return load(code, arrays)

    def _path(self, arrays: Sequence[Array]) -> Path:
        if self._file is None:
            digest = hashlib.blake2b(digest_size=16)
            digest.update(_compiler_and_processor())
            digest.update(repr([(array.dtype.str, array.ndim) for array in arrays]).encode())
            digest.update(repr((self.inlines, sorted(self.constants))).encode())
            for function in self.functions:
                digest.update(repr((function.__name__, _code_parts(function.__code__))).encode())
            for _, constant in sorted(self.constants.items()):
                digest.update(_constant_bytes(constant))
            self._file = cache_folder() / f"{self.functions[-1].__name__}-{digest.hexdigest()}.o"
        return self._file


def cache_folder() -> Path:
    """Where compiled functions are kept: below the cache of this user, else in a folder for this process.

    Never in one that somebody else made: what lies there is run.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base / "firstfault" / "compiled"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        is_ours = folder.stat().st_uid == os.getuid() and os.access(folder, os.W_OK)
    except OSError:
        is_ours = False
    return folder if is_ours else _temporary_folder()


@cache
def _temporary_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="firstfault-"))


def as_function(function: Callable[..., Any]) -> types.FunctionType:
    """What ``def`` makes; nothing else has bytecode."""
    if not isinstance(function, types.FunctionType):
        raise TypeError(f"only plain functions are compiled, got {function!r}")
    return function


def _constants(functions: Sequence[types.FunctionType]) -> Mapping[str, Any]:
    """What the functions use by a global name, other than each other, modules and built-ins."""
    found: dict[str, Any] = {}
    known = {function.__name__: function for function in functions}
    for function in functions:
        for name in _global_names(function.__code__):
            if name not in function.__globals__:
                continue  # a built-in, or the attribute of a module
            value = function.__globals__[name]
            if isinstance(value, types.FunctionType):
                if known.get(name) is not value:
                    raise ValueError(f"{function.__name__} calls {name}, which must be among its parts")
            elif name in known:
                raise ValueError(f"{name} must mean one thing in all parts, is a function and {value!r}")
            elif name in found and not _is_same(found[name], value):
                raise ValueError(
                    f"{name} must mean one thing in all parts, is {found[name]!r} and, in"
                    f" {function.__name__}, {value!r}"
                )
            else:
                found[name] = value
    return found


def _global_names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _global_names(constant)


def _is_same(one: object, other: object) -> bool:
    return one is other or _constant_bytes(one) == _constant_bytes(other)


def _constant_bytes(value: object) -> bytes:
    """What tells a constant from all others."""
    if isinstance(value, np.ndarray):
        return repr((value.dtype.str, value.shape)).encode() + value.tobytes()
    if isinstance(value, types.ModuleType):
        return value.__name__.encode()
    if isinstance(value, type):  # of numpy: what a number is turned into
        return value.__qualname__.encode()
    if isinstance(value, _CONSTANTS):
        return f"{type(value).__name__} {value!r}".encode()
    raise TypeError(f"a constant of a compiled function must be numbers, got {value!r}")


def _code_parts(code: types.CodeType) -> tuple[object, ...]:
    """What is compiled of a function: all but where it stands."""
    constants = [
        _code_parts(each) if isinstance(each, types.CodeType) else (type(each).__name__, each)
        for each in code.co_consts
        if not isinstance(each, str)  # what it says of itself
    ]
    return (code.co_code, code.co_names, code.co_varnames, code.co_argcount, constants)


@cache
def _compiler_and_processor() -> bytes:
    """What makes machine code of the same functions another one."""
    from importlib.util import find_spec

    import llvmlite
    import llvmlite.binding as llvm

    numba = find_spec("numba")
    release = b"" if numba is None else (Path(str(numba.origin)).parent / "_version.py").read_bytes()
    features = llvm.get_host_cpu_features().flatten()
    told = (sys.version, llvmlite.__version__, llvm.get_host_cpu_name(), features, llvm.get_process_triple())
    return repr(told).encode() + release
