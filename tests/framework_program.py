"""A few iterations under each framework that has an integration, with a probe and without.

    python -m tests.framework_program FOLDER

Run as a process of its own: frameworks change warnings, signals and threads of the process they are in. Each
training writes ``<name>.jsonl``; what the test compares is printed as one JSON object.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

import firstfault

from .probe_job import free_port, launch

MICROBATCHES = 2
ITERATIONS = 6
MAIN_GRAD = "main_grad"
"""Where Megatron's wrapper adds up the gradients of a parameter."""


class Net(nn.Module):
    """A model in the manner of Hugging Face: it computes its own loss."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """The loss and the prediction."""
        y: torch.Tensor = self.layers(x)
        return {"loss": (y.squeeze(-1) - labels).square().mean(), "logits": y}


class Pairs(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Numbers and their sums."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, at: int) -> dict[str, torch.Tensor]:
        x = torch.randn(4, generator=torch.Generator().manual_seed(at))
        return {"x": x, "labels": x.sum()}


def digest(module: nn.Module) -> str:
    """A hash of all parameters."""
    parts = [one.detach().numpy().tobytes() for one in module.parameters()]
    return hashlib.blake2b(b"".join(parts), digest_size=8).hexdigest()


def train_hf(folder: Path, sink: str | None) -> str:
    """Under the Trainer of Hugging Face, which evaluates and saves on the way."""
    from transformers import Trainer, TrainingArguments

    model = Net()
    arguments = TrainingArguments(
        output_dir=str(folder / "hf"),
        max_steps=ITERATIONS,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=MICROBATCHES,
        eval_strategy="steps",
        eval_steps=3,
        save_steps=4,
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        seed=7,
    )
    callbacks = [firstfault.hf_callback("hf", sink)] if sink else []
    Trainer(model, arguments, train_dataset=Pairs(), eval_dataset=Pairs(), callbacks=callbacks).train()
    return digest(model)


def train_lightning(folder: Path, sink: str | None) -> str:
    """Under Lightning."""
    import lightning.pytorch as pl

    class Module(pl.LightningModule):  # type: ignore[misc]  # the package is not read for types
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def training_step(self, batch: Any, _index: int) -> torch.Tensor:
            loss: torch.Tensor = self.net(**batch)["loss"]
            return loss

        def validation_step(self, batch: Any, _index: int) -> None:
            self.log("val_loss", self.net(**batch)["loss"])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=0.01)

    module = Module()
    trainer = pl.Trainer(
        max_steps=ITERATIONS,
        accumulate_grad_batches=MICROBATCHES,
        val_check_interval=4,
        limit_val_batches=2,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=str(folder / "lightning"),
        callbacks=[firstfault.lightning_callback("lightning", sink)] if sink else [],
    )
    loader = torch.utils.data.DataLoader(Pairs(), batch_size=4)
    trainer.fit(module, loader, loader)
    return digest(module)


def train_accelerate(_folder: Path, sink: str | None) -> str:
    """In a loop of one's own with Accelerate."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=MICROBATCHES)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    loader = torch.utils.data.DataLoader(Pairs(), batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    probe = firstfault.accelerate_probe(accelerator, model, optimizer, "accelerate", sink) if sink else None
    for at, batch in enumerate(loader):
        if at == ITERATIONS * MICROBATCHES:
            break
        with accelerator.accumulate(model):
            accelerator.backward(model(**batch)["loss"])
            optimizer.step()
            optimizer.zero_grad()
    if probe is not None:
        probe.close()
    return digest(model)


def halve_gradients(model: list[nn.Module]) -> None:
    """What a reduction over two ranks with the same gradient does, of which one sends nothing."""
    for one in model[0].parameters():
        getattr(one, MAIN_GRAD).mul_(0.5)


def train_megatron(_folder: Path, sink: str | None) -> str:
    """A loop in the manner of Megatron: chunks of a model, and one function for an iteration."""
    chunk = Net()
    config = SimpleNamespace(finalize_model_grads_func=halve_gradients)
    optimizer = torch.optim.AdamW(chunk.parameters(), lr=0.01)
    batches = iter(torch.utils.data.DataLoader(Pairs(), batch_size=4))

    def train_step(
        data_iterator: Iterator[Any],
        model: list[nn.Module],
        optimizer: Any,
        config: Any,
        iteration: int | None = None,
    ) -> tuple[Any, ...]:
        optimizer.zero_grad()
        loss: torch.Tensor = model[0](**next(data_iterator))["loss"]
        torch.autograd.backward([loss])
        for one in model[0].parameters():
            setattr(one, MAIN_GRAD, one.grad)
        config.finalize_model_grads_func(model)
        norm = nn.utils.clip_grad_norm_(model[0].parameters(), 1.0).item()
        optimizer.step()
        return {"lm loss": loss.detach()}, 0, False, False, 0, norm, None, 0

    step = firstfault.megatron_hook(train_step, "megatron", sink) if sink else train_step
    for iteration in range(ITERATIONS):
        step(batches, [chunk], optimizer, config, iteration=iteration)
    return digest(chunk)


TRAININGS = {
    "hf": train_hf,
    "lightning": train_lightning,
    "accelerate": train_accelerate,
    "megatron": train_megatron,
}


def train_hf_in_parallel(folder: Path, rank: int, port: int) -> None:
    """One of two ranks under the Trainer of Hugging Face, which wraps the model by DDP."""
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE="2",
        LOCAL_WORLD_SIZE="2",
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        OMP_NUM_THREADS="1",
    )
    torch.set_num_threads(1)
    train_hf(folder / f"rank{rank}", str(folder / "parallel.jsonl"))


def main(folder: Path) -> None:
    """Train under each, without and with a probe."""
    # forked before anything was computed: threads of a computation do not live on in a child
    port = free_port()
    if launch(2, lambda rank: train_hf_in_parallel(folder, rank, port)):
        raise SystemExit("a rank failed")
    digests = {
        name: [train(folder, None), train(folder, str(folder / f"{name}.jsonl"))]
        for name, train in TRAININGS.items()
    }
    print(json.dumps(digests))  # noqa: T201 (what the test reads)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
