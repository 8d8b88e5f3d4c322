"""What can go wrong in the service.

ServiceError
├── ConfigError    a setting that cannot be; names the key in full, the rule and the value
├── StoreError     the store cannot be used: damaged, of a newer release, or refused by its server
│   ├── StoreFull       no space is left: retriable
│   ├── StoreBusy       locked for too long, or its server is away: retriable
│   ├── OwnershipLost   another worker has taken over what this one was writing
│   └── SplitRun        another worker judges this run from other partitions
├── ServiceAway    the service that a command asks does not answer, or not now
├── AlreadyRunning another process holds the data folder, or the port is taken
└── StageError     the demo broke down; names what ended and the last lines it wrote
"""

from __future__ import annotations

from typing import ClassVar


class ServiceError(Exception):
    """Something that is nobody's bug, told to the person in one line."""


class ConfigError(ServiceError):
    """A setting that cannot be: names the key in full, the rule and the value."""


class StoreError(ServiceError):
    """The store cannot be used: it is damaged, newer than this release, or refused by its server."""

    retriable: ClassVar[bool] = False


class StoreFull(StoreError):
    """No space is left; nothing was written, and the same may be tried again once there is some."""

    retriable: ClassVar[bool] = True


class StoreBusy(StoreError):
    """Locked for too long, or the server is away; nothing was written, and the same may be tried again."""

    retriable: ClassVar[bool] = True


class OwnershipLost(StoreError):
    """Another worker has taken over what this one was writing; nothing was written."""


class SplitRun(StoreError):
    """Another worker judges this run from other partitions; nothing was written."""


class StageError(ServiceError):
    """The demo cannot go on: names what ended and the last lines it wrote."""


class AlreadyRunning(ServiceError):
    """Another process holds the data folder, or the port is taken."""


class ServiceAway(ServiceError):
    """The service that a command asks does not answer, or not now."""
