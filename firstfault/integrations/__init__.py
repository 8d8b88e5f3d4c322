"""One line for the trainers that people use. Each framework is imported by its own function alone."""

from __future__ import annotations

from .accelerated import accelerate_probe
from .hf import hf_callback
from .lightning import lightning_callback
from .megatron import megatron_hook

__all__ = ["accelerate_probe", "hf_callback", "lightning_callback", "megatron_hook"]
