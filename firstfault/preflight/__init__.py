"""The workload of `firstfault canary`: what a rank computes in rounds, and how the ranks of a launch meet.

Importing this needs the standard library alone; `workload.py` and `meeting.py` need torch.
"""

from .config import PreflightConfig, PreflightError, require_torch

__all__ = ["PreflightConfig", "PreflightError", "require_torch"]
