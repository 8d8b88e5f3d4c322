"""What a metric turned out to be, learned from its first settled positions.

Many loops log a local norm as ``grad_norm``, or a reduced loss as ``loss``: the name promises one
contract and the values show another. `Roles` looks at the first positions at which two or more
ranks reported and decides once; the decision is used wherever the contract is.
"""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """How a metric's values behave, against what its name promises."""

    AS_NAMED = "as_named"
    LOCAL = "local"
    """Named as agreed over all ranks, but every rank has its own: in truth a local value."""
    GLOBAL = "global"
    """Named as local, but bit-equal on all ranks from the start: in truth the reduced value."""
