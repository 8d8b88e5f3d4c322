"""Texts as logs are full of, to measure how fast the scanner goes through them.

Each maker gives ``count`` lines, the first of which is line ``first`` of the log.
"""

from __future__ import annotations

import random
from collections.abc import Callable

_SYLLABLES = (
    "ka",
    "lo",
    "mi",
    "tor",
    "sun",
    "ver",
    "pol",
    "bra",
    "ix",
    "den",
    "qu",
    "ar",
    "oth",
    "em",
    "zi",
    "bu",
)
_ADDRESS_BITS, _BAR_CELLS = 48, 30


def _word(rng: random.Random) -> str:
    return "".join(rng.choices(_SYLLABLES, k=rng.randint(1, 4)))


def words(rng: random.Random, _first: int, count: int) -> str:
    """Prose with numbers in it: each line has a shape of its own."""
    lines = (
        " ".join(
            _word(rng) if rng.random() < 0.7 else str(rng.randint(0, 9999)) for _ in range(rng.randint(4, 16))
        )
        for _ in range(count)
    )
    return "\n".join(lines) + "\n"


def hexadecimal(rng: random.Random, first: int, count: int) -> str:
    """A dump of memory."""
    return "".join(
        f"{(first + at) * 16:08x}  {rng.randbytes(8).hex(' ')}  {rng.randbytes(8).hex(' ')}  |........|\n"
        for at in range(count)
    )


def nccl(rng: random.Random, _first: int, count: int) -> str:
    """What NCCL tells of 64 processes, with addresses."""
    return "".join(
        f"node-{rng.randint(0, 7)}:{4000 + at % 64}:{5000 + at % 64} [{at % 8}] NCCL INFO"
        f" Connected to proxy localRank"
        f" {at % 8} -> connection 0x{rng.getrandbits(_ADDRESS_BITS):012x} Channel"
        f" {rng.randint(0, 31):02d}/1 :"
        f" {at % 64}[{at % 8}] -> {(at + 1) % 64}[{(at + 1) % 8}] via P2P/CUMEM comm"
        f" 0x{rng.getrandbits(_ADDRESS_BITS):x}\n"
        for at in range(count)
    )


def tqdm(rng: random.Random, first: int, count: int) -> str:
    """Progress bars redrawn by carriage returns."""
    return "".join(
        f"\rEpoch 3:  {step * 100 // 9999:2d}%|{'█' * (step * 10 // 9999):10s}| {step}/9999"
        f" [{step // 600:02d}:{step // 10 % 60:02d}<16:00,  9.87it/s,"
        f" loss={rng.lognormvariate(0.5, 0.1):.4f}]"
        for step in ((first + at) % 9999 for at in range(count))
    )


def dictionary(rng: random.Random, _first: int, count: int) -> str:
    """A configuration printed as a Python dictionary."""
    return "".join(
        f"    '{_word(rng)}_{_word(rng)}': {{'{_word(rng)}': {rng.randint(0, 4096)},"
        f" '{_word(rng)}': {rng.random():.4f},"
        f" 'path': '/data/{_word(rng)}/{_word(rng)}.yaml', 'enabled': {rng.random() < 0.5}}},\n"
        for _ in range(count)
    )


def source(rng: random.Random, _first: int, count: int) -> str:
    """A traceback, again and again, with other names."""
    lines = (
        f'  File "/opt/{_word(rng)}/{_word(rng)}.py", line {rng.randint(1, 900)}, in {_word(rng)}\n'
        f"    {_word(rng)} = self.{_word(rng)}({_word(rng)}[{rng.randint(0, 9)}],"
        f" {_word(rng)}={rng.random():.2f})\n"
        for _ in range(count // 2)
    )
    return "".join(lines)


def nginx(rng: random.Random, _first: int, count: int) -> str:
    """An access log."""
    return "".join(
        f"10.{rng.randint(0, 255)}.7 - - [28/Jun/26:16:{at // 60 % 60:02d}:{at % 60:02d}"
        " +0000]"
        f' "GET /{_word(rng)}?id={rng.randint(0, 99999)} HTTP/1.1" 200'
        f' {rng.randint(100, 99999)} "-"'
        f' "Mozilla/5.0 (X11; Linux x86_64)"\n'
        for at in range(count)
    )


def overflow(rng: random.Random, _first: int, count: int) -> str:
    """DeepSpeed's skipped steps, each after a step that counted."""
    return "".join(
        f"[2026-06-28 16:08:{at % 60:02d},{at % 1000:03d}] [INFO] [scaler.py:190:update] [deepspeed]"
        " OVERFLOW!"
        f" Rank {at % 8} Skipping step. Attempted loss scale: {1 << rng.randint(1, 16)}, reducing to"
        f" {1 << rng.randint(0, 15)}\n"
        for at in range(count)
    )


def keras(rng: random.Random, first: int, count: int) -> str:
    """Bars taken back by backspaces."""
    return "".join(
        "\b" * 80 + f"{step:4d}/9999 [{'=' * (step * _BAR_CELLS // 9999)}>"
        f"{'.' * (_BAR_CELLS - 1 - step * _BAR_CELLS // 9999)}]"
        f" - ETA: {step // 60}:{step % 60:02d} - loss: {rng.lognormvariate(0.5, 0.1):.4f} - accuracy: 0.5000"
        for step in ((first + at) % 9998 for at in range(count))
    )


def loguru(rng: random.Random, first: int, count: int) -> str:
    """Coloured lines of Loguru."""
    return "".join(
        f"\x1b[32m2026-06-28 16:08:{at % 60:02d}.{at % 1000:03d}\x1b[0m | \x1b[1mINFO    \x1b[0m |"
        f" \x1b[36m__main__\x1b[0m:\x1b[36mtrain\x1b[0m:\x1b[36m57\x1b[0m - \x1b[1mstep {first + at} | loss"
        f" {rng.lognormvariate(0.5, 0.1):.4f}\x1b[0m\n"
        for at in range(count)
    )


def nanogpt(rng: random.Random, first: int, count: int) -> str:
    """nanoGPT's records."""
    return "".join(
        f"iter {first + at}: loss {rng.lognormvariate(0.5, 0.1):.4f}, time"
        f" {rng.uniform(1000, 1200):.2f}ms, mfu 38.20%\n"
        for at in range(count)
    )


def huggingface(rng: random.Random, first: int, count: int) -> str:
    """Dictionaries of HF's Trainer."""
    return "".join(
        f"{{'loss': {rng.lognormvariate(0.5, 0.1):.4f}, 'grad_norm': {rng.lognormvariate(0, 0.3):.10f},"
        f" 'learning_rate': 1e-05, 'epoch': {(first + at) / 1000:.3f}}}\n"
        for at in range(count)
    )


def timm(rng: random.Random, first: int, count: int) -> str:
    """timm's records."""
    return "".join(
        f"Train: 0 [{first + at:>7d}/9999999 ({0:>3.0f}%)]  Loss: {rng.lognormvariate(0.5, 0.1):#.3g} (6.95)"
        f"  Time: 0.312s, 3280.00/s  (0.330s, 3100.00/s)  LR: 1.000e-05  Data: 0.011 (0.025)\n"
        for at in range(count)
    )


TEXTS: dict[str, tuple[Callable[[random.Random, int, int], str], int]] = {
    "words": (words, 160_000),
    "hex": (hexadecimal, 110_000),
    "nccl": (nccl, 55_000),
    "tqdm": (tqdm, 100_000),
    "dict": (dictionary, 80_000),
    "source": (source, 160_000),
    "nginx": (nginx, 65_000),
    "overflow": (overflow, 52_000),
    "keras": (keras, 50_000),
    "loguru": (loguru, 60_000),
    "nanogpt": (nanogpt, 160_000),
    "hf": (huggingface, 80_000),
    "timm": (timm, 65_000),
}
"""Makers of text, and the lines that make about a piece."""
