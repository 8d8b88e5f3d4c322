"""firstfault: find the first fault of a training job.

>>> from firstfault import Client, Probe, replay
"""

from .client import Client
from .client_http import ApiError
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
