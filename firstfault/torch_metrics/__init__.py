"""Signals of a model in training, computed on its device: what `Probe.watch` attaches. Needs torch.

Not imported by ``firstfault`` itself, which is the standard library alone.
"""

from .config import WatchConfig
from .defaults import default_signals
from .hashing import checksum, hex_of
from .readback import Readback
from .signal import Signal
from .watch import Watch

__all__ = ["Readback", "Signal", "Watch", "WatchConfig", "checksum", "default_signals", "hex_of"]
