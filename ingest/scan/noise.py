"""Lines whose numbers are no telemetry."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Lines whose numbers are no telemetry."""

    name: str
    form: re.Pattern[bytes]
    example: str


NOISE: tuple[Noise, ...] = (
    Noise(
        name="darknet regions",
        form=re.compile(rb"\bRegion \d+ Avg IOU: |\bRegion Avg IOU: |\(Region \d+ |^v3 \("),
        example="Region 82 Avg IOU: -nan, Class: -nan, Obj: -nan, No Obj: 0.000002, count: 0",
    ),
    Noise(
        name="Megatron timers",
        form=re.compile(rb"^\s*(?:\[[^\]\n]{0,60}\] ?)?(?:time \(ms\) \||\(min, max\) time across ranks)"),
        example="time (ms) | forward-compute: 2950.50 | optimizer-unscale-and-check-inf: 1.75",
    ),
    Noise(
        name="NCCL information",
        form=re.compile(rb"\bNCCL (?:INFO|TRACE) "),
        example="node-1:2345:2399 [3] NCCL INFO Channel 00 : 0[7000] -> 1[b000] via P2P/IPC",
    ),
    Noise(
        name="corrected losses of ESPnet",
        form=re.compile(rb"\bloss \(=[-\w.+]+\) is not correct"),
        example="WARNING: loss (=125000032.000000) is not correct",
    ),
    Noise(
        name="warnings of summary writers",
        form=re.compile(rb"NaN or Inf found in input tensor"),
        example="WARNING:root:NaN or Inf found in input tensor.",
    ),
    Noise(
        name="losses of a traceback",
        form=re.compile(rb"^loss_dict = \{|^\s+grad_fn=<"),
        example="loss_dict = {'loss_cls': tensor(nan, device='cuda:0', grad_fn=<NllLossBackward>)}",
    ),
    Noise(
        name="Megatron memory reports",
        form=re.compile(rb"\(after \d+ iterations\) memory \(MB\) \|"),
        example="[Rank 0] (after 10 iterations) memory (MB) | allocated: 1875.5 | max allocated: 2450.5",
    ),
    Noise(
        name="sizes of data sets",
        form=re.compile(rb"^\s{2,}(?:train|valid|validation|test): {3,}\d+\s*$"),
        example="    train:      1024000",
    ),
)


def is_noise(line: bytes) -> bool:
    """Whether the numbers of a line are no telemetry."""
    return any(noise.form.search(line) for noise in NOISE)
