"""A synthetic run of known truth: records of all ranks, edited by faults, judged as the product does."""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from detectors.verdict import Verdict, canonical_bytes, to_json
from ingest.decode import Decoder
from service.pipeline import Pipeline

Json = dict[str, Any]
Edit = Callable[[Any, int, int], Any]


class SyntheticRun:
    """Losses and norms that decay with noise, equal checksums every ten iterations, checkpoints every fifty.

    ``set`` writes a value, or ``value(old, iteration, rank)``, over ``[start, stop)`` of some ranks.
    """

    def __init__(
        self,
        ranks: int = 8,
        iterations: int = 200,
        *,
        start: int = 0,
        attempt: int = 0,
        mesh: list[tuple[str, int]] | None = None,
        **fields: Any,
    ) -> None:
        self.ranks, self.attempt = ranks, attempt
        axes = mesh or [("dp", ranks)]
        launch = {
            "world_size": ranks,
            "mesh": [list(axis) for axis in axes],
            "hosts": [f"n{rank // 8}" for rank in range(ranks)],
        }
        self.events = [self._event("run_start", start, **{**launch, **fields})]
        if attempt:
            self.events.append(self._event("resume", start))
        self.records: dict[tuple[int, int], Json] = {}
        shape = tuple(size for _, size in axes)
        rng = np.random.default_rng(start + 1)
        for t in range(start, start + iterations):
            level = 2.0 + 3.0 * math.exp(-t / 60)
            norm = float(level * math.exp(0.08 * rng.normal()))
            noise_R = rng.normal(0, 0.05, ranks)
            for rank in range(ranks):
                place = dict(zip((name for name, _ in axes), np.unravel_index(rank, shape), strict=True))
                record = self._named(t, rank) | {
                    "loss": level + float(noise_R[int(place.get("dp", 0))]),
                    "local_grad_norm": 1.5 * level * math.exp(float(noise_R[rank])),
                    "grad_norm": norm,
                }
                if t % 10 == 0:
                    record["param_checksum"] = digest(t, int(place.get("pp", 0)), int(place.get("tp", 0)))
                self.records[t, rank] = record
            if t and t % 50 == 0:
                self.events.append(self._event("checkpoint", t, path=f"/c/{t}"))

    def set(
        self, name: str, value: Any, start: int, stop: int | None = None, ranks: Iterable[int] | None = None
    ) -> SyntheticRun:
        chosen = set(range(self.ranks) if ranks is None else ranks)
        for (t, rank), record in self.records.items():
            if rank in chosen and t >= start and (stop is None or t < stop):
                record[name] = value(record.get(name), t, rank) if callable(value) else value
        return self

    def check(self, name: str, of: Callable[[int, int], str], every: int = 10) -> SyntheticRun:
        """Report a checksum ``of(iteration, rank)`` every some iterations."""
        for (t, rank), record in self.records.items():
            if t % every == 0:
                record[name] = of(t, rank)
        return self

    def differ(self, name: str, start: int, ranks: Iterable[int], stop: int | None = None) -> SyntheticRun:
        """Let a checksum of some ranks be another, where they report it."""
        for (t, rank), record in self.records.items():
            if rank in set(ranks) and name in record and t >= start and (stop is None or t < stop):
                record[name] = digest(record[name], "other")
        return self

    def turn_nan(self, start: int, first: Iterable[int]) -> SyntheticRun:
        """The loss of ``first`` turns NaN, the reduced gradient with it, all else an iteration later."""
        for name in ("loss", "local_grad_norm"):
            self.set(name, "NaN", start, start + 1, first).set(name, "NaN", start + 1)
        return self.set("grad_norm", "NaN", start)

    def tell(self, event: str, iteration: int, rank: int = 0, **fields: Any) -> SyntheticRun:
        self.events.append(self._event(event, iteration, rank, **fields))
        return self

    def lines(self) -> list[bytes]:
        ordered = [*self.events, *self.records.values()]
        ordered.sort(key=lambda one: (one["iteration"], "event" not in one))
        return [json.dumps(one).encode() for one in ordered]

    def _named(self, iteration: int, rank: int) -> Json:
        return {"run": "job", "rank": rank, "iteration": iteration, "attempt": self.attempt}

    def _event(self, event: str, iteration: int, rank: int = 0, **fields: Any) -> Json:
        return {"event": event} | self._named(iteration, rank) | fields


def digest(*parts: object) -> str:
    return hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()


def judged(*runs: SyntheticRun) -> Json:
    """The verdict as JSON; it must be the same in any order and cutting."""
    lines = [line for run in runs for line in run.lines()]
    verdict = _verdict(lines, 5000)
    shuffled = _shuffled(lines)
    assert canonical_bytes(_verdict(shuffled, 97)) == canonical_bytes(verdict)
    return to_json(verdict)


def _verdict(lines: list[bytes], size: int) -> Verdict:
    pipeline, decoder = Pipeline(), Decoder()
    for at in range(0, len(lines), size):
        pipeline.feed(decoder.decode_lines(b"\n".join(lines[at : at + size]) + b"\n", "test", at))
    (verdict,) = pipeline.verdicts()
    return verdict


def _shuffled(lines: list[bytes]) -> list[bytes]:
    """Some twice, each up to 60 iterations late."""
    rng, keyed = random.Random(0), []
    for line in [*lines, *lines[::5]]:
        record = json.loads(line)
        keyed.append((record["attempt"], record["iteration"] + rng.uniform(0, 59), line))
    return [line for *_, line in sorted(keyed)]
