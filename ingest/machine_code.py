"""Machine code of functions of arrays: made by numba, kept as a file, called through its address.

A function that numba compiled takes behind two places, for its result and for an error, the fields of each
array one by one: two for who owns it (nobody), number and size of elements, address, lengths and strides.
That is numba's layout since its first releases; a file is kept apart for each release of it.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import tempfile
import time
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]
"""Any: arrays of any type."""

_NO_OWNER = (0, 0)
_MATHEMATICS = "libm.so.6"
_MOST_FILES = 256
"""Files kept, those used last: five releases of all functions, 20 kB each."""
_LONGEST_S = 90 * 86_400.0
"""Seconds without a use after which a file goes: of a release that was not run for a quarter."""
_USED_EVERY_S = 86_400.0
"""Seconds after which a further use is noted: a run loads twenty files."""
_LONG_FROM_ELEMENTS = 4096
"""Elements of the first array from which on other threads may run meanwhile: some 0.1 ms. None of them may
touch the arrays."""
_INTRINSIC = "llvm."
"""Beginning of what is no function but an instruction."""


@dataclass(frozen=True, slots=True)
class MachineCode:
    """An object file, the name of its function, and the functions of the process that it calls."""

    symbol: str
    calls: tuple[str, ...]
    object_bytes: bytes


class CompiledFunctionError(RuntimeError):
    """A compiled function ended with an error, as by a division by zero; a bug in it, whatever the input."""


class Entry:
    """A function in machine code, ready to be called."""

    def __init__(self, name: str, address: int, arrays: Sequence[Array], keeps: object) -> None:
        self.name = name
        self._keeps = keeps  # the code lives as long as what loaded it
        self._types = [(array.dtype, array.ndim) for array in arrays]
        fields = sum(5 + 2 * array.ndim for array in arrays)
        takes = ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * fields
        self._call = ctypes.PYFUNCTYPE(ctypes.c_int32, *takes)(address)
        self._long_call = ctypes.CFUNCTYPE(ctypes.c_int32, *takes)(address)

    def __call__(self, arrays: Sequence[Array]) -> int:
        return self.bound(arrays)()

    def bound(self, arrays: Sequence[Array]) -> Callable[[], int]:
        """The function of these arrays."""
        if [(array.dtype, array.ndim) for array in arrays] != self._types:
            raise TypeError(f"{self.name} was compiled for {self._types}")
        fields: list[int] = []
        for array in arrays:
            fields += _fields(array)
        result, error = ctypes.c_int64(), ctypes.c_void_p()
        places = ctypes.addressof(result), ctypes.addressof(error)

        # A short call keeps the lock of the interpreter, which may be long in coming back.
        function = self._long_call if arrays[0].size >= _LONG_FROM_ELEMENTS else self._call

        def call(_alive: Sequence[Array] = arrays) -> int:
            status = function(*places, *fields)
            if status:
                raise CompiledFunctionError(f"{self.name} ended with status {status}")
            return result.value

        return call


class Dispatched:
    """A function that numba itself calls, where its release does not tell the machine code."""

    def __init__(self, dispatcher: Any) -> None:
        self._dispatcher = dispatcher

    def __call__(self, arrays: Sequence[Array]) -> int:
        return int(self._dispatcher(*arrays))

    def bound(self, arrays: Sequence[Array]) -> Callable[[], int]:
        """The function of these arrays."""
        return partial(self._dispatcher, *arrays)


def compile_functions(
    functions: Sequence[types.FunctionType],
    constants: Mapping[str, Any],
    arrays: Sequence[Array],
    *,
    inlines: bool,
) -> MachineCode | Dispatched:
    """The last of ``functions``, which calls the others, for such arrays."""
    numba = _numba()
    signature = tuple(numba.types.Array(numba.from_dtype(one.dtype), one.ndim, "C") for one in arrays)
    # Without counting references, which only hands arrays on; nothing in it makes any.
    bare = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "_nrt": False}
    try:
        dispatcher = _dispatcher(functions, constants, inlines=inlines, **bare)
        dispatcher.compile(signature)
        made = dispatcher.overloads[signature]
        returned = numba.types.unliteral(made.signature.return_type)
        code = _told(made)
    except (AttributeError, KeyError):  # what is asked of numba here is its own, and may become another
        return Dispatched(_dispatcher(functions, constants, inlines=inlines))
    if returned != numba.types.int64:
        raise TypeError(f"{functions[-1].__name__} must give an integer, gives {returned}")
    return code


def _dispatcher(
    functions: Sequence[types.FunctionType], constants: Mapping[str, Any], *, inlines: bool, **options: bool
) -> Any:
    """What numba compiles the last of ``functions`` by; all are compiled with the same constants."""
    names: dict[str, Any] = {"__builtins__": __builtins__, **constants}
    for function in functions:
        plain = types.FunctionType(function.__code__, names, function.__name__)
        plain.__module__ = function.__module__
        is_inlined = inlines and function is not functions[-1]
        names[function.__name__] = _numba().njit(fastmath=False, forceinline=is_inlined, **options)(plain)
    return names[functions[-1].__name__]


def _told(made: Any) -> MachineCode:
    """What numba compiled, as bytes that another process can load."""
    _, _, (object_bytes, _) = made.library.serialize_using_object_code()
    declared = (one.name for one in made.library._final_module.functions if one.is_declaration)
    calls = tuple(sorted(name for name in declared if not name.startswith(_INTRINSIC)))
    return MachineCode(made.fndesc.llvm_func_name, calls, object_bytes)


def load(code: MachineCode, arrays: Sequence[Array]) -> Entry:
    """What can be called of it.

    Raises:
        CompiledFunctionError: this process lacks a function that it calls, which LLVM would end it for.
    """
    llvm = _llvm()
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)  # this opens the process, too
    if any(not llvm.address_of_symbol(name) for name in code.calls):
        with suppress(RuntimeError):  # another system has it elsewhere
            llvm.load_library_permanently(_MATHEMATICS)  # a Python that is linked to it keeps it to itself
    missing = [name for name in code.calls if not llvm.address_of_symbol(name)]
    if missing:
        raise CompiledFunctionError(f"{code.symbol} calls {', '.join(missing)}, which this process lacks")
    engine.add_object_file(llvm.ObjectFileRef.from_data(code.object_bytes))
    engine.finalize_object()
    return Entry(code.symbol, engine.get_function_address(code.symbol), arrays, engine)


def read(path: Path) -> MachineCode | None:
    """What `write` wrote; None where nothing or half of it is there."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    head, _, object_bytes = data.partition(b"\n")
    try:
        told = json.loads(head)
    except ValueError:
        return None
    if told["digest"] != _digest(object_bytes):
        return None
    with suppress(OSError):
        if time.time() - path.stat().st_mtime > _USED_EVERY_S:
            os.utime(path)
    return MachineCode(told["symbol"], tuple(told["calls"]), object_bytes)


def write(path: Path, code: MachineCode) -> None:
    """Keep it for processes to come; where that cannot be, they compile it again."""
    told = {"symbol": code.symbol, "calls": code.calls, "digest": _digest(code.object_bytes)}
    try:
        handle, name = tempfile.mkstemp(dir=path.parent)
    except OSError:
        return
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(json.dumps(told).encode() + b"\n" + code.object_bytes)
        Path(name).replace(path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        return
    _prune(path)


def _prune(newest: Path) -> None:
    """Remove what nobody used for long beside a file that was just written, and what exceeds the number."""
    with suppress(OSError):
        now_s = newest.stat().st_mtime
        used: list[tuple[float, Path]] = []
        for path in newest.parent.glob("*.o"):
            with suppress(OSError):  # another process prunes too
                used.append((path.stat().st_mtime, path))
        used.sort(reverse=True)
        for at, (used_s, path) in enumerate(used):
            if path != newest and (at >= _MOST_FILES or now_s - used_s > _LONGEST_S):
                path.unlink(missing_ok=True)


def _digest(object_bytes: bytes) -> str:
    return hashlib.blake2b(object_bytes, digest_size=16).hexdigest()


def _fields(array: Array) -> tuple[int, ...]:
    if not (array.flags.c_contiguous and array.flags.aligned):
        raise ValueError("arrays of a compiled function must be contiguous and aligned")
    data: int = array.__array_interface__["data"][0]
    return (*_NO_OWNER, array.size, array.itemsize, data, *array.shape, *array.strides)


@cache
def _llvm() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


@cache
def _numba() -> Any:
    """numba, without the linear algebra of scipy: no fold uses it, and to load it takes as long as numba."""
    import numba
    from numba.np import linalg

    look_for_blas = linalg.ensure_blas
    linalg.ensure_blas = _refuse
    try:
        from numba.np import arraymath  # noqa: F401  # looks once, when it is imported
    finally:
        linalg.ensure_blas = look_for_blas
    return numba


def _refuse() -> None:
    raise ImportError("linear algebra is not used here")
