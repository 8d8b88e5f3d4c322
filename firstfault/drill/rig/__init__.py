"""The fault-injection rig: a real small training job, its faults, and a twin of every run without them.

`spec` says what a job and a fault are, `catalogue` which faults there are, `engine` runs a job. Importing
the package loads the standard library alone; torch is loaded when a job runs.

    >>> from firstfault.drill.rig import Fault, Job, Kind, Site
    >>> fault = Fault(kind=Kind.BIT_FLIP, site=Site.PARAMETER, iteration=120, rank=3, bit=27)
    >>> Job(seed=7).layout.ranks
    8
"""

from __future__ import annotations

from ..plans import DrillError
from .layouts import LAYOUTS
from .spec import Fault, Job, Kind, Layout, LayoutName, ModelSize, Site, data_parallel
from .training import Restart, RigTraining, Watch

__all__ = [
    "LAYOUTS",
    "DrillError",
    "Fault",
    "Job",
    "Kind",
    "Layout",
    "LayoutName",
    "ModelSize",
    "Restart",
    "RigTraining",
    "Site",
    "Watch",
    "data_parallel",
]
