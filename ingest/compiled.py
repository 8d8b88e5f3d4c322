"""Plain functions compiled by numba, and where it keeps them."""

from __future__ import annotations

import hashlib
import os
import tempfile
import types
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

_PACKAGES = ("ingest", "detectors")
"""Packages of this distribution that compile functions."""
_OURS = "firstfault-"
"""What the name of a folder of compiled functions begins with, before the digest of their source."""


def compile_function(
    function: Callable[..., Any], parts: Sequence[Callable[..., Any]] = (), *, inlines: bool = False
) -> Callable[..., Any]:
    """``function`` compiled, with its parts compiled too; the module itself keeps the plain ones.

    ``parts`` are the functions it calls, each after those that it calls itself. ``inlines``: they are
    put into it, since a call that hands on arrays takes as long as reading a number of a log.
    """
    prepare_cache()
    names: dict[str, Any] = {}
    for part in (*parts, function):
        names.update(part.__globals__)
    for part in (*parts, function):
        plain = types.FunctionType(part.__code__, names, part.__name__)
        plain.__module__ = part.__module__
        names[part.__name__] = _jit(plain, is_inlined=inlines and part is not function)
    compiled: Callable[..., Any] = names[function.__name__]
    return compiled


def is_kept(function: Callable[..., Any]) -> bool:
    """Whether an earlier process compiled ``function`` and kept it, so that loading it takes a moment."""
    prepare_cache()
    pattern = f"*/{Path(function.__code__.co_filename).stem}.{function.__qualname__}-*.nbi"
    return any(Path(os.environ["NUMBA_CACHE_DIR"]).glob(pattern))


def _jit(plain: Callable[..., Any], *, is_inlined: bool) -> Any:
    numba = _numba()
    try:
        return numba.njit(cache=True, fastmath=False, forceinline=is_inlined)(plain)
    except RuntimeError:  # typed at a prompt: numba keeps nothing of what is in no file
        return numba.njit(fastmath=False, forceinline=is_inlined)(plain)


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


def prepare_cache() -> None:
    """Point numba's cache at a folder that can be written, before numba is imported.

    A read-only install or home would make the import of a cached function fail. The folder is named after
    the source of all compiled functions, also below one that the environment gives: numba looks at a
    function's own file alone, and would take one that was compiled with what another file has changed since.
    """
    given = os.environ.get("NUMBA_CACHE_DIR")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "firstfault" / "numba"
    folder = Path(given) if given else base
    if folder.name.startswith(_OURS):  # chosen here, or by the process that started this one
        return
    folder /= _OURS + _source_digest()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        is_writable = os.access(folder, os.W_OK)
    except OSError:
        is_writable = False
    if not is_writable:
        folder = Path(tempfile.mkdtemp(prefix=_OURS))
    os.environ["NUMBA_CACHE_DIR"] = str(folder)


def _source_digest() -> str:
    """Of every file of the packages, whose constants are part of what is compiled."""
    digest = hashlib.blake2b(digest_size=8)
    root = Path(__file__).parent.parent
    for package in _PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()
