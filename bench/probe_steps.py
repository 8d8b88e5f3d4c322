"""A model of over 50 million parameters in training, whose steps are timed with a probe or without."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from firstfault import Probe
from firstfault.torch_metrics import WatchConfig, checksum
from firstfault.torch_metrics.watch import Guarded

WIDTH, LAYERS, HEADS, VOCABULARY = 640, 10, 10, 8192
CONTEXT = 256


@dataclass(frozen=True, slots=True)
class Step:
    """One step that was timed."""

    took_s: float
    inside_s: float
    """Of it, what the probe's hooks and its step boundary took; 0 where the device queues its work."""


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
        self.is_queued = self.device.type == "cuda"
        self.clock = time.perf_counter if self.is_queued else time.process_time
        self.parameters = sum(one.numel() for one in self.model.parameters())

    def step(self, config: WatchConfig | None) -> Step:
        """One step, in which the signals of ``config`` all report."""
        if config is None:
            return Step(self._timed(_nothing), 0.0)
        self.probe.watch(self.model, self.optimizer, config=config)
        inside = Inside(self.clock)
        try:
            with inside.counted():
                took_s = self._timed(inside.around(lambda loss: self.probe.step(loss, iteration=0)))
        finally:
            self.probe.watching.detach()
        return Step(took_s, 0.0 if self.is_queued else inside.seconds)

    def seconds(self, work: Callable[[], object], times: int = 9) -> float:
        """The median time of some work on the device."""
        taken = []
        for _ in range(times):
            self._wait()
            begin = self.clock()
            work()
            self._wait()
            taken.append(self.clock() - begin)
        return statistics.median(taken)

    def _timed(self, report: Callable[[torch.Tensor], None]) -> float:
        self._wait()
        begin = self.clock()
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            logits = self.model(self._tokens[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1).float(), self._tokens[:, 1:].flatten())
        torch.autograd.backward([loss])
        self.optimizer.step()
        report(loss.detach())
        self.optimizer.zero_grad()
        self._wait()
        return self.clock() - begin

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


class Inside:
    """Adds up what is spent inside the probe."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.seconds = 0.0
        self._clock = clock
        self._depth = 0

    def around(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """``work``, its time counted; what it calls of the same kind counts once."""

        def counted(*args: Any, **kwargs: Any) -> Any:
            self._depth += 1
            begin = self._clock()
            try:
                return work(*args, **kwargs)
            finally:
                self._depth -= 1
                self.seconds += 0.0 if self._depth else self._clock() - begin

        return counted

    @contextmanager
    def counted(self) -> Iterator[None]:
        """A stretch in which every hook of a watch is counted."""
        call = Guarded.__call__
        Guarded.__call__ = self.around(call)  # type: ignore[method-assign]  # the one place all hooks go through
        try:
            yield
        finally:
            Guarded.__call__ = call  # type: ignore[method-assign]


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
