"""What the probe costs a training step, as a paired ratio: each signal alone, and all at their cadences.

    python -m bench.probe [--rounds N] [--tokens N] [--json] [--publish]

A transformer of over 50 million parameters trains in this process, on the first accelerator or else on the
CPU. In each round one step of every arm (a signal alone, all that come each iteration, nothing) is timed, in
an order drawn anew. Each arm reports in the step that is timed, whatever its cadence, and a signal that comes
every N iterations costs the N-th part; the total is that of all which come each iteration, plus those parts.

On the CPU one thread computes, since those that wait for the next loop spin, which would count as work; time
is that of the processor, and so of the thread that sends too, and two ratios are told. The first pairs a step
with itself: with and without what is spent in the hooks of the probe and at its step boundary, which is exact
to a thousandth of a percent. The second pairs it with the step of its round that had no probe, which holds
what the first may miss (caches, dispatch) and whatever else the machine did.
On an accelerator, where work is queued, there is only the second, by the clock, up to where the device is
done. Told are medians over rounds with the interval that holds them in 95 of 100 cases, or
in fewer where there are less than six rounds.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import random
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from bench.probe_steps import Bench, Step, bandwidths
from bench.quality.publishing import with_part
from firstfault.torch_metrics import WatchConfig
from firstfault.torch_metrics.canary_cadence import Cadence

PAGE = Path(__file__).resolve().parent.parent / "docs" / "training.md"
BEGIN = "<!-- probe: this part is written by python -m bench.probe --publish -->"
END = "<!-- probe: end -->"
READ_AS = (
    "A step is paired with itself, less what the probe took of it, and with the step of its round that had "
    "no probe; medians, and intervals that hold them in {held} of 100 cases."
)
OFF = "nothing"
TOGETHER = "all of each iteration"
CANARY = "canary, forward and backward twice"
SIGNALS: Mapping[str, Sequence[str]] = {
    "loss, learning rate, loss scale, step time": ("loss", "schedule"),
    "inputs and logits: checksum, non-finite values": ("inputs", "logits"),
    "activations and their gradients at 4 layers": ("activations",),
    "local gradient: norm, non-finite values": ("local_grad",),
    "gradient sketches": ("grad_sketch",),
    "checksum of the parameters": ("parameters",),
    "checksum of the optimizer's state": ("optimizer_state",),
}
"""What is measured alone, and the settings of `WatchConfig` that switch it on. In one process the gradient
after the reduction is the local one."""
CADENCES = tuple(name for names in SIGNALS.values() for name in names)


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio with the interval in which its median lies in `held` of 100 cases."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, ratios: Sequence[float]) -> Ratio:
        """The median, and the order statistics that hold it whatever the distribution."""
        ordered = sorted(ratios)
        cut = _outside(len(ordered))
        return cls(statistics.median(ordered), ordered[cut], ordered[-1 - cut])

    def text(self) -> str:
        """As a cost: ``+0.31 % (0.22 to 0.40)``."""
        cost, low, high = (100 * (value - 1) for value in (self.median, self.low, self.high))
        return f"{cost:+.2f} % ({low:.2f} to {high:.2f})"


@dataclass(frozen=True, slots=True)
class Row:
    """One signal."""

    name: str
    every: int
    """Iterations from one report to the next."""
    within: Ratio
    """Of a step in which it reports to the same step less what the probe took of it."""
    beside: Ratio
    """Of a step in which it reports to one without a probe."""
    is_queued: bool
    """Whether only the second tells anything."""

    @property
    def share(self) -> float:
        """Its cost as a share of the time of training."""
        return ((self.beside if self.is_queued else self.within).median - 1) / self.every

    def line(self) -> str:
        """As a row of the table."""
        within = "" if self.is_queued else self.within.text()
        return f"| {self.name} | {self.every} | {within} | {self.beside.text()} | {100 * self.share:.3f} % |"


def main() -> int:
    """Measure, print, and publish where asked to."""
    options = _options()
    logging.getLogger("firstfault.probe").setLevel(logging.ERROR)  # each arm is a watch in place of the last
    with tempfile.TemporaryDirectory(prefix="firstfault-bench-") as folder:
        if not torch.cuda.is_available():
            torch.set_num_threads(1)
        bench = Bench(options.tokens, Path(folder))
        rows, step_s = measured(bench, options.rounds, random.Random(0))
        words = f"{bandwidths(bench)} {READ_AS.format(held=held(options.rounds))}"
        bench.probe.close()
    lines = table(rows)
    size = (
        f"{bench.parameters / 1e6:.0f} million parameters, {options.tokens} tokens and {step_s:.2f} s a step"
    )
    head = f"{size}, {bench.device.type}, {torch.get_num_threads()} thread, {options.rounds} rounds."
    if options.json:
        print(json.dumps({"rows": [asdict(row) for row in rows], "total": total(rows), "step_s": step_s}))
    else:
        print("\n".join([head, words, "", *lines]))
    if options.publish:
        part = "\n".join([f"Measured by `python -m bench.probe`: {head} {words}", "", *lines, ""])
        PAGE.write_text(with_part(PAGE.read_text(encoding="utf-8"), BEGIN, END, part), encoding="utf-8")
    return 0


def measured(bench: Bench, rounds: int, rng: random.Random) -> tuple[list[Row], float]:
    """Each signal alone, and the seconds of a bare step."""
    arms = arms_of(WatchConfig())
    for config in (None, *arms.values()):
        bench.step(config)  # the first time allocates
    steps: dict[str, list[Step]] = {name: [] for name in (*arms, OFF)}
    for at in range(rounds):
        order = list(steps)
        rng.shuffle(order)
        for name in order:
            print(f"\rround {at + 1} of {rounds}: {name:50}", end="", file=sys.stderr, flush=True)
            steps[name].append(bench.step(arms.get(name)))
    print(file=sys.stderr)
    step_s = statistics.median(one.took_s for one in steps[OFF])
    return [row_of(name, steps[name], steps[OFF], bench.is_queued) for name in arms], step_s


def row_of(name: str, steps: Sequence[Step], bare: Sequence[Step], is_queued: bool) -> Row:
    """What the steps of one arm come to, beside those of their rounds that had no probe."""
    within = Ratio.of([one.took_s / (one.took_s - one.inside_s) for one in steps])
    beside = Ratio.of([one.took_s / base.took_s for one, base in zip(steps, bare, strict=True)])
    return Row(name, cadence_of(name, beside if is_queued else within), within, beside, is_queued)


def arms_of(default: WatchConfig) -> dict[str, WatchConfig]:
    """What is measured: each signal alone, and all together that come at each iteration."""
    often = [name for name in CADENCES if getattr(default, name) == 1]
    arms = {name: only(fields) for name, fields in {**SIGNALS, TOGETHER: often}.items()}
    return {**arms, CANARY: replace(only(()), canary_budget=default.canary_budget, canary_every=1)}


def only(signals: Sequence[str]) -> WatchConfig:
    """Settings under which these signals report in each iteration, and no other."""
    cadences: dict[str, Any] = {name: int(name in signals) for name in CADENCES}
    return replace(WatchConfig(), **cadences, global_grad=0, canary_budget=0, recompute=0)


def cadence_of(name: str, ratio: Ratio) -> int:
    """How many iterations lie between two reports, by default; a canary comes as its cost allows."""
    default = WatchConfig()
    if name == CANARY:
        return Cadence(default.canary_budget).affordable(ratio.median - 1, 1.0)
    return max((getattr(default, field) for field in SIGNALS.get(name, ())), default=1)


def total(rows: Sequence[Row]) -> float:
    """The share of time that all take at their cadences."""
    return sum(row.share for row in rows if row.every > 1 or row.name == TOGETHER)


def table(rows: Sequence[Row]) -> list[str]:
    """The rows of a Markdown table."""
    heads = ["signal", "every", "of the step that has it", "beside a step without", "of all time"]
    lines = [f"| {' | '.join(heads)} |", "| --- | --- | --- | --- | --- |", *(row.line() for row in rows)]
    return [*lines, f"| **all, at their cadences** | | | | **{100 * total(rows):.2f} %** |"]


def held(count: int) -> int:
    """In how many of 100 cases the interval of the median of ``count`` values holds it.

    >>> held(3), held(6), held(20)
    (75, 96, 95)
    """
    below = sum(math.comb(count, outside) for outside in range(_outside(count) + 1))
    return int(100 * (1 - below / 2 ** (count - 1)))


def _outside(count: int) -> int:
    """How many of ``count`` values on each side the 95 % interval of their median leaves out."""
    share, cut = 0.5**count, 0
    below = share
    while below + share * (count - cut) / (cut + 1) <= 0.025 and cut + 1 < count // 2:
        share *= (count - cut) / (cut + 1)
        below += share
        cut += 1
    return cut


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9, help="steps timed of each arm")
    parser.add_argument("--tokens", type=int, default=1024, help="tokens of a step")
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    parser.add_argument("--publish", action="store_true", help="write the table into docs/training.md")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
