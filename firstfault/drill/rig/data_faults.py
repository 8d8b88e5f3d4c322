"""What a fault makes of the data: the wrong shard, noise, or values that are not numbers.

Axes: B samples, L positions, F features.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ..corpus import VOCABULARY
from .corruption import is_of_elements
from .faults import Faults
from .reading import Reader, Shards
from .spec import Kind, Site

_NAN_VALUES = 4
"""Broken values of a bad sample: a stretch of a recording that was cut."""


def read_shards(
    reader: Reader, faults: Faults, at: tuple[int, int], ranks: Sequence[int], world: int
) -> Shards:
    """What each rank reads at (iteration, microbatch), with what a fault makes of it."""
    iteration, microbatch = at
    places = [(rank, iteration, microbatch) for rank in ranks]
    is_struck = faults.is_at(Site.DATA)
    if is_struck and faults.is_kind(Kind.DUPLICATE_DATA):
        for row in faults.rows():
            places[row] = ((ranks[row] + 1) % world, iteration, microbatch)
    if is_struck and faults.is_kind(Kind.RANDOM_DESYNC):
        # the generator of the rank is one step ahead: the shard of the iteration to come
        for row in faults.rows():
            places[row] = (ranks[row], iteration + 1, microbatch)
    shards = reader.shards(places)
    return _struck(faults, shards, iteration, ranks) if is_struck else shards


def _struck(faults: Faults, shards: Shards, iteration: int, ranks: Sequence[int]) -> Shards:
    tokens_HBS, features_HBLF = shards.tokens_HBS, shards.features_HBLF
    fault = faults.fault
    assert fault is not None
    if fault.kind in (Kind.BAD_BATCH, Kind.BAD_BATCHES):
        for row in faults.rows():
            rng = np.random.default_rng([fault.seed, iteration, ranks[row]])
            drawn = torch.from_numpy(rng.integers(0, VOCABULARY, tokens_HBS[row].shape))
            is_drawn = torch.from_numpy(rng.random(tokens_HBS[row].shape) < fault.magnitude)
            tokens_HBS[row] = torch.where(is_drawn, drawn, tokens_HBS[row])
    elif fault.kind is Kind.NAN_INPUT:
        for row in faults.rows():
            features_HBLF[row, 0, 5 : 5 + _NAN_VALUES, 0] = torch.nan
    elif is_of_elements(fault.kind):
        features_HBLF = faults.strike(Site.DATA, features_HBLF)
    return Shards(tokens_HBS, features_HBLF)
