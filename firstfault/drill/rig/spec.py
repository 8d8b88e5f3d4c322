"""What a job of the rig is, and what a fault is. Standard library only.

Everything here is a value: the same job, seed and fault give the same log, byte for byte.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from ..plans import DrillError
from .training import RigTraining, Watch

BITS = {"fp32": 32, "bf16": 16, "fp16": 16}
"""Bits of each number format a flip may be in; the highest is the sign."""
MAX_RANKS = 64
"""One process holds all replicas; more only costs time."""


class Site(StrEnum):
    """Where in an iteration a fault acts."""

    DATA = "data"
    FORWARD = "forward"
    RECOMPUTE = "recompute"
    """The activation computed a second time in the backward pass: the loss never sees it."""
    ACT_GRAD = "act_grad"
    WEIGHT_GRAD = "weight_grad"
    REDUCE_IN = "reduce_in"
    """What one rank hands to the reduction."""
    REDUCE_OUT = "reduce_out"
    """The copy of the result that one rank gets."""
    REDUCE_ALL = "reduce_all"
    """The result that all ranks get."""
    PARAMETER = "parameter"
    FIRST_MOMENT = "first_moment"
    SECOND_MOMENT = "second_moment"
    LOSS_FUNCTION = "loss_function"
    LOSS_SCALE = "loss_scale"
    SCHEDULE = "schedule"
    MESSAGE = "message"
    """Between pipeline stages, or between a router and an expert."""
    GATHER = "gather"
    """The parameters that one receiver collects from their owners."""
    CHECKPOINT = "checkpoint"


class Kind(StrEnum):
    """What goes wrong."""

    BIT_FLIP = "bit_flip"
    STUCK_BIT = "stuck_bit"
    MULTI_FLIP = "multi_flip"
    RELATIVE_ERROR = "relative_error"
    TILE_ERROR = "tile_error"
    WRONG_ORDER = "wrong_order"
    STALE = "stale"
    DROPPED = "dropped"
    MISSING_SYNC = "missing_sync"
    CORRUPT_MESSAGE = "corrupt_message"
    WRONG_GATHER = "wrong_gather"
    SHARD_OWNER = "shard_owner"
    FP8_SCALE = "fp8_scale"
    TIED_DESYNC = "tied_desync"
    NORM_DESYNC = "norm_desync"
    DUPLICATE_DATA = "duplicate_data"
    RANDOM_DESYNC = "random_desync"
    CORRUPT_RESTORE = "corrupt_restore"
    INCOMPLETE_RESTORE = "incomplete_restore"
    LOST_UPDATES = "lost_updates"
    INF_MINUS_INF = "inf_minus_inf"
    NAN = "nan"
    INF = "inf"
    HIGH_LR = "high_lr"
    LR_JUMP = "lr_jump"
    NO_WARMUP = "no_warmup"
    BAD_BATCH = "bad_batch"
    BAD_BATCHES = "bad_batches"
    NAN_INPUT = "nan_input"
    LOG_OF_ZERO = "log_of_zero"
    EXPONENT_OVERFLOW = "exponent_overflow"
    WRONG_NORMALIZATION = "wrong_normalization"
    TP_DESYNC = "tp_desync"


class LayoutName(StrEnum):
    """How the ranks share the work."""

    DP = "dp"
    PP4_TP2_DP2 = "pp4_tp2_dp2"
    ZERO1 = "zero1"
    FULL_SHARD = "full_shard"
    EXPERT = "expert"
    LOCAL_SGD = "local_sgd"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault: what, where, when, on whom, how often and how hard.

    Kinds read of the last five fields what they need; `catalogue` has each kind's usual values.
    """

    kind: Kind
    site: Site
    iteration: int
    """First iteration in which it acts."""
    rank: int | None = None
    """The rank it strikes; None for all ranks alike."""
    lasts: int | None = 1
    """Iterations for which it acts; None until the end. A fault of one iteration strikes the training
    pass alone, a lasting one also the canary and the recomputation."""
    rate: float = 1.0
    """Share of the passes that it strikes while it lasts: the per-pass rate of a bad unit."""
    bit: int | None = None
    """Bit that flips or sticks, 0 = the lowest of the mantissa; None draws one."""
    dtype: str = "fp32"
    """Format in which the bit flips: the value is rounded to it, changed, and widened again."""
    magnitude: float = 1.0
    """Relative size of an error, or a factor: each kind says which."""
    count: int = 1
    """Elements that it strikes in a pass."""
    place: str | None = None
    """Product whose output or its gradient is struck: layer0.qkv, .out, .up, .down, …, logits; None draws
    one."""
    seed: int = 0
    """Draws the place, the elements and, with a rate, the passes."""

    def __post_init__(self) -> None:
        _require(self.iteration >= 0, "fault.iteration must be >= 0", self.iteration)
        is_rank = self.rank is None or 0 <= self.rank < MAX_RANKS
        _require(is_rank, f"fault.rank must be None or from 0 to {MAX_RANKS - 1}", self.rank)
        _require(self.lasts is None or self.lasts >= 1, "fault.lasts must be None or >= 1", self.lasts)
        _require(0 < self.rate <= 1, "fault.rate must be over 0 and at most 1", self.rate)
        _require(self.dtype in BITS, f"fault.dtype must be one of {', '.join(BITS)}", self.dtype)
        top = BITS[self.dtype] - 1
        is_bit = self.bit is None or 0 <= self.bit <= top
        _require(is_bit, f"fault.bit must be None or from 0 to {top} in {self.dtype}", self.bit)
        _require(self.magnitude > 0, "fault.magnitude must be > 0", self.magnitude)
        _require(self.count >= 1, "fault.count must be >= 1", self.count)

    def acts(self, iteration: int) -> bool:
        """Whether it may act in this iteration; its rate decides then.

        >>> Fault(kind=Kind.NAN, site=Site.FORWARD, iteration=5, lasts=2).acts(6)
        True
        """
        is_over = self.lasts is not None and iteration >= self.iteration + self.lasts
        return iteration >= self.iteration and not is_over


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How the ranks are placed and which state they share."""

    name: LayoutName = LayoutName.DP
    ranks: int = 8
    mesh: tuple[tuple[str, int], ...] = (("dp", 8),)
    """Axes with their sizes, slowest first, as in a ``run_start``."""
    sharding: str = "none"

    def __post_init__(self) -> None:
        _require(1 <= self.ranks <= MAX_RANKS, f"layout.ranks must be from 1 to {MAX_RANKS}", self.ranks)
        product = 1
        for _, size in self.mesh:
            product *= size
        _require(product == self.ranks, f"layout.mesh must hold {self.ranks} ranks", self.mesh)
        # the flat tensor is padded to a multiple of 64 floats
        is_even = self.sharding == "none" or 64 % self.ranks == 0
        _require(is_even, "layout.ranks of sharded state must divide 64", self.ranks)

    def size(self, axis: str) -> int:
        """Ranks along one axis; 1 where the mesh has no such axis."""
        return dict(self.mesh).get(axis, 1)


def data_parallel(ranks: int = 8) -> Layout:
    """Plain data parallel ranks."""
    return Layout(name=LayoutName.DP, ranks=ranks, mesh=(("dp", ranks),))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSize:
    """Size of the transformer; the defaults train 8 replicas at some milliseconds an iteration."""

    width: int = 16
    heads: int = 2
    layers: int = 2
    length: int = 16
    samples: int = 2
    """Samples of one rank in one microbatch."""
    is_normalised: bool = True
    """Layer norms. Without them nothing bounds the activations, and too high a learning rate explodes."""

    def __post_init__(self) -> None:
        # 64 floats fill whole vector registers: then one rank alone gives the bits it gives among others
        is_whole = self.samples * self.length * self.width % 64 == 0 and self.width % 8 == 0
        _require(is_whole, "model: samples * length * width must be a multiple of 64, width of 8", self.width)
        _require(self.width % self.heads == 0, "model.width must be a multiple of model.heads", self.width)
        _require(1 <= self.layers <= 16, "model.layers must be from 1 to 16", self.layers)
        _require(8 <= self.length <= 128, "model.length must be from 8 to 128", self.length)
        _require(1 <= self.samples <= 64, "model.samples must be from 1 to 64", self.samples)


def places(size: ModelSize) -> list[str]:
    """Every product in which an activation fault may be, in the order of the forward pass."""
    parts = ("qkv", "out", "up", "down")
    return [f"layer{layer}.{part}" for layer in range(size.layers) for part in parts] + ["logits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One training job; with a seed, everything that a healthy run will say."""

    seed: int = 0
    run: str = "rig"
    layout: Layout = field(default_factory=Layout)
    iterations: int = 600
    model: ModelSize = field(default_factory=ModelSize)
    training: RigTraining = field(default_factory=RigTraining)
    watch: Watch = field(default_factory=Watch)

    def __post_init__(self) -> None:
        _require(1 <= self.iterations <= 1_000_000, "iterations must be from 1 to 1000000", self.iterations)
        _require(self.seed >= 0, "seed must be >= 0", self.seed)
        sizes = [one.ranks for one in self.training.restarts if one.ranks is not None]
        is_fitting = self.layout.name is LayoutName.DP or not sizes
        _require(is_fitting, "training.restarts may change the world size in layout dp alone", sizes)
        stages, parts = self.layout.size("pp"), self.layout.size("tp")
        is_enough = self.model.layers >= stages
        _require(is_enough, f"model.layers must be at least the {stages} stages", self.model.layers)
        is_whole = self.model.heads % parts == 0
        _require(is_whole, f"model.heads must be a multiple of the {parts} ranks of tp", self.model.heads)


def _require(is_met: bool, rule: str, value: object) -> None:
    if not is_met:
        raise DrillError(f"{rule}, got {value!r}")
