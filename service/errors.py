"""What can go wrong in the service.

ServiceError
├── ConfigError    a setting that cannot be; names the key in full, the rule and the value
├── StoreError     the store cannot be used: taken over, damaged, or of a newer release
└── StageError     the demo broke down; names what ended and the last lines it wrote
"""

from __future__ import annotations


class ServiceError(Exception):
    """Something that is nobody's bug, told to the person in one line."""


class ConfigError(ServiceError):
    """A setting that cannot be: names the key in full, the rule and the value."""


class StoreError(ServiceError):
    """The store cannot be used: another worker has taken it, it is damaged, or newer than this release."""


class StageError(ServiceError):
    """The demo cannot go on: names what ended and the last lines it wrote."""
