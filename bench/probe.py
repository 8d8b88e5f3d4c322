"""What the probe costs a training step, as a paired ratio: each signal alone, and all at their cadences.

    python -m bench.probe [--rounds N] [--tokens N] [--json] [--publish]

A transformer of over 50 million parameters trains in this process, on the first accelerator or else on the
CPU. In each round one step of every arm (a signal alone, all that come each iteration, nothing) is timed, in
an order drawn anew, so that what else the machine does meets all arms alike. The ratio of a round is that of
an arm to the step without a probe; told are the median over rounds and its 95 % interval. Each arm reports in
the step that is timed, whatever its cadence, and a signal that comes every N iterations costs the N-th part.
The total is the ratio of all that come each iteration, plus those parts.

On the CPU processor time is taken, of all threads and so of the one that sends too: it hardly depends on what
else runs. On an accelerator it is time by the clock, up to where the device is done.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bench.quality.publishing import with_part
from firstfault import Probe
from firstfault.torch_metrics import WatchConfig, checksum

README = Path(__file__).resolve().parent.parent / "README.md"
BEGIN = "<!-- probe: this part is written by python -m bench.probe --publish -->"
END = "<!-- probe: end -->"
WIDTH, LAYERS, HEADS, VOCABULARY = 640, 10, 10, 8192
CONTEXT = 256
OFF = "nothing"
TOGETHER = "all of each iteration"
SIGNALS: Mapping[str, Sequence[str]] = {
    "loss, learning rate, loss scale, step time": ("loss", "schedule"),
    "inputs: checksum and non-finite values": ("inputs",),
    "activations and their gradients": ("activations",),
    "gradient before the reduction: norm and count": ("local_grad",),
    "gradient after the reduction: norm and count": ("global_grad",),
    "gradient sketches on both sides": ("grad_sketch",),
    "checksum of the parameters": ("parameters",),
    "checksum of the optimizer's state": ("optimizer_state",),
}
"""What is measured alone, and the settings of `WatchConfig` that switch it on."""
CADENCES = tuple(name for names in SIGNALS.values() for name in names)


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio with the interval in which its median lies in 95 of 100 cases."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, ratios: Sequence[float]) -> Ratio:
        """The median, and the order statistics that hold it whatever the distribution."""
        ordered = sorted(ratios)
        cut = _outside(len(ordered))
        return cls(statistics.median(ordered), ordered[cut], ordered[-1 - cut])

    def text(self, every: int = 1) -> str:
        """As a cost: ``+0.31 % (0.22 to 0.40)``."""
        cost, low, high = (100 * (value - 1) / every for value in (self.median, self.low, self.high))
        return f"{cost:+.2f} % ({low:.2f} to {high:.2f})"


@dataclass(frozen=True, slots=True)
class Row:
    """One signal."""

    name: str
    every: int
    """Iterations from one report to the next."""
    ratio: Ratio
    """Of a step in which it reports."""

    @property
    def share(self) -> float:
        """Its cost as a share of the time of training."""
        return (self.ratio.median - 1) / self.every


class Transformer(nn.Module):
    """A decoder of ordinary make."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
            )
            for _ in range(LAYERS)
        )
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits, by the embedding once more."""
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=True)
        logits: torch.Tensor = self.norm(x) @ self.embed.weight.t()
        return logits


class Bench:
    """A model in training, of which single steps are timed."""

    def __init__(self, tokens: int, folder: Path) -> None:
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        torch.manual_seed(1)
        self.model = Transformer().to(self.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        self.probe = Probe(run="bench", rank=0, sink=str(folder / "bench.jsonl"))
        self._tokens = torch.randint(0, VOCABULARY, (max(1, tokens // CONTEXT), CONTEXT + 1)).to(self.device)
        self._clock = time.perf_counter if self.device.type == "cuda" else time.process_time
        self.parameters = sum(one.numel() for one in self.model.parameters())

    def step(self, config: WatchConfig | None) -> float:
        """Seconds of one step, in which the signals of ``config`` all report."""
        if config is None:
            return self._timed(_nothing)
        self.probe.watch(self.model, self.optimizer, config=config)
        watch = self.probe.watching
        try:
            return self._timed(lambda loss: self.probe.step(loss, iteration=0))
        finally:
            watch.detach()

    def seconds(self, work: Callable[[], object], times: int = 9) -> float:
        """The median time of some work on the device."""
        taken = []
        for _ in range(times):
            self._wait()
            begin = self._clock()
            work()
            self._wait()
            taken.append(self._clock() - begin)
        return statistics.median(taken)

    def _timed(self, report: Callable[[torch.Tensor], None]) -> float:
        self._wait()
        begin = self._clock()
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            logits = self.model(self._tokens[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1).float(), self._tokens[:, 1:].flatten())
        torch.autograd.backward([loss])
        self.optimizer.step()
        report(loss.detach())
        self.optimizer.zero_grad()
        self._wait()
        return self._clock() - begin

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def main() -> int:
    """Measure, print, and publish where asked to."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="firstfault-bench-") as folder:
        bench = Bench(options.tokens, Path(folder))
        rows, total, step_s = measured(bench, options.rounds, random.Random(0))
        words = bandwidths(bench)
        bench.probe.close()
    lines = table(rows, total)
    size = (
        f"{bench.parameters / 1e6:.0f} million parameters, {options.tokens} tokens and {step_s:.2f} s a step"
    )
    head = f"{size}, {bench.device.type}, {torch.get_num_threads()} threads, {options.rounds} rounds."
    if options.json:
        print(json.dumps({"rows": [asdict(row) for row in rows], "total": total, "step_s": step_s}))
    else:
        print("\n".join([head, words, "", *lines]))
    if options.publish:
        part = "\n".join([f"Measured by `python -m bench.probe`: {head} {words}", "", *lines, ""])
        README.write_text(with_part(README.read_text(encoding="utf-8"), BEGIN, END, part), encoding="utf-8")
    return 0


def measured(bench: Bench, rounds: int, rng: random.Random) -> tuple[list[Row], float, float]:
    """Each signal alone, the total at the default cadence as a share, and the seconds of a bare step."""
    arms = arms_of(WatchConfig())
    for config in (None, *arms.values()):
        bench.step(config)  # the first time allocates
    times: dict[str, list[float]] = {name: [] for name in arms}
    bare: list[float] = []
    for _ in range(rounds):
        order = [*arms, OFF]
        rng.shuffle(order)
        for name in order:
            (bare if name == OFF else times[name]).append(bench.step(arms.get(name)))
    rows = [
        Row(
            name,
            cadence_of(name),
            Ratio.of([took / base for took, base in zip(times[name], bare, strict=True)]),
        )
        for name in arms
    ]
    together = next(row for row in rows if row.name == TOGETHER)
    total = together.share + sum(row.share for row in rows if row.every > 1)
    return rows, total, statistics.median(bare)


def arms_of(default: WatchConfig) -> dict[str, WatchConfig]:
    """What is measured: each signal alone, and all together that come at each iteration."""
    often = [name for name in CADENCES if getattr(default, name) == 1]
    return {name: only(fields) for name, fields in {**SIGNALS, TOGETHER: often}.items()}


def only(signals: Sequence[str]) -> WatchConfig:
    """Settings under which these signals report in each iteration, and no other."""
    cadences: dict[str, Any] = {name: int(name in signals) for name in CADENCES}
    return replace(WatchConfig(), **cadences)


def cadence_of(name: str) -> int:
    """How many iterations lie between two reports, by default."""
    default = WatchConfig()
    return max((getattr(default, field) for field in SIGNALS.get(name, ())), default=1)


def table(rows: Sequence[Row], total: float) -> list[str]:
    """The rows of a Markdown table."""
    lines = ["| signal | every | cost of a step that has it | of all time |", "| --- | --- | --- | --- |"]
    lines += [f"| {row.name} | {row.every} | {row.ratio.text()} | {100 * row.share:+.3f} % |" for row in rows]
    return [*lines, f"| **all, at their cadences** | | | **{100 * total:+.2f} %** |"]


def bandwidths(bench: Bench) -> str:
    """The checksum of all parameters beside a copy of them, in bytes read a second."""
    held = [one.detach() for one in bench.model.parameters()]
    size = sum(one.numel() * one.element_size() for one in held)
    target = [torch.empty_like(one) for one in held]

    def copy() -> None:
        for one, other in zip(held, target, strict=True):
            other.copy_(one)

    copied, hashed = (size / bench.seconds(work) / 1e9 for work in (copy, lambda: checksum(held)))
    return f"The checksum reads {hashed:.1f} GB/s, {100 * hashed / copied:.0f} % of what a copy reads."


def _nothing(_loss: torch.Tensor) -> None:
    """What a step without a probe reports."""


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
    parser.add_argument("--rounds", type=int, default=12, help="steps timed of each arm")
    parser.add_argument("--tokens", type=int, default=512, help="tokens of a step")
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    parser.add_argument("--publish", action="store_true", help="write the table into the README")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
