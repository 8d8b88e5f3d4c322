"""firstfault: find the first fault of a training job.

>>> from firstfault import Client, replay
"""

from .client import Client
from .client_http import ApiError
from .replaying import replay

__all__ = ["ApiError", "Client", "replay"]
