"""The outer edge of every command: exit statuses, and what failures say."""

from __future__ import annotations

import atexit
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from firstfault.client import Client

_PATIENCE_S = 5.0
"""How long a command waits for a service that is busy: a person sits before it."""


class Exit(IntEnum):
    """Exit statuses: scripts rely on them."""

    HEALTHY = 0
    INCIDENT = 1
    UNUSABLE = 2
    """Usage or settings wrong, input unreadable, or a run that no check could judge."""
    FAILED = 3
    """The service could not do its work: broker, store, or a bug."""
    INTERRUPTED = 130
    BROKEN_PIPE = 141
    TERMINATED = 143


def tell(sentence: str) -> None:
    """One line of data on standard output, at once: whoever reads it may wait for it."""
    sys.stdout.write(sentence + "\n")
    sys.stdout.flush()


def say(text: str) -> None:
    """One line of talk on standard error."""
    sys.stderr.write(f"firstfault: {text}\n")


def leave(status: int) -> NoReturn:
    """End the process without freeing what it holds piece by piece, which takes 0.1 s after a large log."""
    atexit._run_exitfuncs()  # the module's name for what the interpreter itself calls at its end
    sys.stderr.flush()  # the edge has seen to standard output
    os._exit(status)


@contextmanager
def outer_edge() -> Iterator[None]:
    """Turn what can go wrong in any command into one line and its exit status; a bug goes on."""
    try:
        yield
        sys.stdout.flush()
    except KeyboardInterrupt:
        raise SystemExit(Exit.INTERRUPTED) from None
    except BrokenPipeError:
        # what is still buffered has no reader either; without this Python complains at shutdown
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(Exit.BROKEN_PIPE) from None
    except Exception as error:
        status = _status_of(error)
        if status is None:
            raise
        say(str(error))
        raise SystemExit(status) from None


@contextmanager
def asked(url: str, token: str | None) -> Iterator[Client]:
    """A client of the service at ``url``; what it refuses is told in its words.

    Raises:
        ConfigError: the address cannot be, or what was asked is refused.
        ServiceAway: nobody answers, or not now.
    """
    from firstfault.client import Client
    from firstfault.client_errors import ApiError

    from .errors import ConfigError, ServiceAway

    try:
        client = Client(url, token, patience_s=_PATIENCE_S)
    except ValueError as error:
        raise ConfigError(f"--url: {error}") from error
    try:
        yield client
    except ApiError as error:
        kind = ServiceAway if error.status in (0, 429) or error.status >= 500 else ConfigError
        raise kind(str(error)) from error


@contextmanager
def last_edge() -> Iterator[None]:
    """Around everything: an uncaught bug would exit with 1, which says "incident found"."""
    for stream in (sys.stdout, sys.stderr):
        # a run name that the terminal cannot encode must not end the report
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # text streams at start
    try:
        yield
    except Exception:
        traceback.print_exc()
        say("this is a bug in firstfault; please report the lines above")
        raise SystemExit(Exit.FAILED) from None


def _status_of(error: Exception) -> Exit | None:
    """The exit status of a failure that is nobody's bug."""
    from firstfault.drill import DrillError
    from firstfault.preflight import PreflightError
    from ingest.errors import IngestError, UnreadableInput

    from .errors import ConfigError, ServiceError

    if isinstance(error, ConfigError | UnreadableInput | DrillError | PreflightError):
        return Exit.UNUSABLE
    return Exit.FAILED if isinstance(error, ServiceError | IngestError) else None
