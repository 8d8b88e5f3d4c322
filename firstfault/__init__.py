"""firstfault: find the first fault of a training job.

>>> from firstfault import Client, Probe, replay
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .client import Client
    from .client_errors import ApiError
    from .integrations import accelerate_probe, hf_callback, lightning_callback, megatron_hook
    from .probe import Probe
    from .probe_config import ProbeConfig
    from .replaying import replay

__all__ = [
    "ApiError",
    "Client",
    "Probe",
    "ProbeConfig",
    "accelerate_probe",
    "hf_callback",
    "lightning_callback",
    "megatron_hook",
    "replay",
]
_MODULES = {
    "ApiError": "client_errors",
    "Client": "client",
    "Probe": "probe",
    "ProbeConfig": "probe_config",
    "accelerate_probe": "integrations",
    "hf_callback": "integrations",
    "lightning_callback": "integrations",
    "megatron_hook": "integrations",
    "replay": "replaying",
}


def __getattr__(name: str) -> object:
    """What is asked for: who judges a file needs neither a probe nor a client, nor what these load."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f".{_MODULES[name]}", __name__), name)
    globals()[name] = found
    return found
