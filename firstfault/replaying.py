"""Judge log files from a notebook or a script."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any


# Any: verdicts are JSON objects, whose shape detectors/verdict.schema.json fixes.
def replay(path: str | Path | Iterable[str | Path]) -> list[dict[str, Any]]:
    """The verdicts of all runs in a file, a folder or several of them, as JSON objects.

    The same as ``firstfault replay --json``: files that differ by a rank number are one run. A notebook shows
    the list as the page of ``firstfault replay --html``.

    Raises:
        ingest.errors.UnreadableInput: nothing is there, or not one record in it is usable.
        ImportError: the full installation is missing, or a module of yours hides one of its packages.
    """
    try:
        # The one place where this package reaches downstream: everything else here runs in trainers.
        from service.notebook import replay_files
    except ImportError as error:
        raise ImportError(
            f"replay needs all dependencies (install without --no-deps): {error}. If it is installed,"
            " a file or folder named ingest, detectors or service beside your script hides ours"
        ) from error
    paths = [path] if isinstance(path, str | Path) else list(path)
    return replay_files(paths)
