"""firstfault: find the first fault of a training job.

>>> from firstfault import replay
"""

from .replaying import replay

__all__ = ["replay"]
