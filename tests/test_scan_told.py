"""Sentences on many lines of one shape are read once for equal numbers, and tell what each line tells."""

from __future__ import annotations

import random

import pytest

from firstfault.wire import Defaults
from ingest.blocks import RecordBatch
from ingest.scan import told
from ingest.scan.scanner import TextScanner

LINES = (
    (
        "[rank{rank}]: [2026-06-28 16:08:{second:02d},123] [INFO] OVERFLOW! Rank {other} Skipping. Attempted"
        " loss scale: {scale}, reducing to {half}"
    ),
    "{second} Reducing dynamic loss scale from {scale} to {half}.0",
    "Gradient overflow.  Skipping step, loss scaler {other} reducing loss scale to {half}.0",
    "Saving model checkpoint to /runs/{scale}/checkpoint-{second}",
    "Rank {rank}: grad norm is nan. Skipping updating the model.",
)


def log_of(seed: int, lines: int = 400) -> bytes:
    """Sentences of all sorts between steps of four ranks."""
    rng, out, step = random.Random(seed), list[str](), 0
    for _ in range(lines):
        if rng.random() < 0.2:
            step += 1
            out += [f"[rank{rank}]: step {step} loss {2 + rng.random():.4f}" for rank in range(4)]
        scale = 1 << rng.randint(1, 4)
        numbers = {"rank": rng.randint(0, 3), "other": rng.randint(0, 3), "scale": scale, "half": scale // 2}
        out.append(rng.choice(LINES).format(second=rng.randint(0, 59), **numbers))
    return ("\n".join(out) + "\n").encode()


def scanned(data: bytes) -> tuple[RecordBatch, TextScanner]:
    scanner = TextScanner(Defaults(run="r", rank=None), "log")
    return scanner.decode(data), scanner


@pytest.mark.parametrize("seed", range(6))
def test_lines_that_say_the_same_are_told_as_if_each_were_read(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = log_of(seed)
    together, of_all = scanned(data)
    monkeypatch.setattr(told, "_LEAST_LINES", len(data))

    alone, of_each = scanned(data)

    assert len(together.events) > 100
    assert together.events == alone.events
    assert together.iteration_N.tolist() == alone.iteration_N.tolist()
    assert together.rank_N.tolist() == alone.rank_N.tolist()
    assert of_all.understood() == of_each.understood()


def test_a_sentence_that_keeps_its_text_is_read_on_every_line() -> None:
    lines = [f"Saving model checkpoint to /runs/{at % 2:04d}.0/checkpoint-7" for at in range(20)]
    lines += ["Saving model checkpoint to /runs/1/checkpoint-7"] * 20

    batch, _ = scanned(("step 1 loss 2\n" + "\n".join(lines) + "\n").encode())

    assert sorted(str(event.fields["path"]) for _, event in batch.events) == [
        "/runs/0000.0/checkpoint-7",
        "/runs/0001.0/checkpoint-7",
        "/runs/1/checkpoint-7",
    ]


def test_many_equal_lines_at_one_place_are_one_event() -> None:
    line = "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0\n"
    text = "step 1 loss 2.5\n" + line * 500 + "step 2 loss 2.4\n" + line * 500

    batch, scanner = scanned(text.encode())

    assert [event.iteration for _, event in batch.events] == [1, 2]
    assert "apex overflow 1000" in " ".join(scanner.understood().remarks)
