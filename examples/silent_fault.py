"""A small data-parallel training with a probe, in which one rank goes wrong without a word.

    torchrun --nproc-per-node 4 examples/silent_fault.py
    firstfault replay probe-rank*.jsonl

From iteration 120 on a product of rank 2 comes out a thousandth too large (``--kind unit``), or one value of
its parameters changes then (``--kind parameter``). The loss looks as ever; ``--kind none`` is without.
"""

from __future__ import annotations

import argparse

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

import firstfault
from firstfault.torch_metrics import WatchConfig

WIDTH, SAMPLES = 32, 16
RANK, ITERATION = 2, 120


class Unit(nn.Linear):
    """A product by a unit that is defective once ``error`` is set: it computes that much too much."""

    error = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The product."""
        return super().forward(x) * (1 + self.error)


def main() -> None:
    """Train, as any script does; the probe is three lines of it."""
    options = arguments()
    distributed.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = distributed.get_rank()
    torch.manual_seed(0)
    unit = Unit(WIDTH, WIDTH)
    net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), unit, nn.GELU(), nn.Linear(WIDTH, 1))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    probe = firstfault.Probe(run="silent-fault", sink=options.sink)
    # checksums every 10 iterations and a canary every 16: this training lasts 200, not months
    probe.watch(model, optimizer, config=WatchConfig(parameters=10, canary_every=16))

    samples = torch.Generator().manual_seed(rank)
    for iteration in range(options.iterations):
        if rank == RANK and iteration == ITERATION:
            go_wrong(options.kind, unit)
        x = torch.randn(SAMPLES, WIDTH, generator=samples)
        loss = nn.functional.mse_loss(model(x), x.square().mean(1, keepdim=True))
        torch.autograd.backward([loss])
        optimizer.step()
        optimizer.zero_grad()
        probe.step(loss)

    probe.close()
    distributed.destroy_process_group()


def go_wrong(kind: str, unit: Unit) -> None:
    """What a defective chip does, which tells nobody."""
    if kind == "unit":
        unit.error = 1e-3
    elif kind == "parameter":
        with torch.no_grad():
            unit.weight[3, 5] *= 2  # a bit of its exponent


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kind", choices=["unit", "parameter", "none"], default="unit")
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--sink", default="probe.jsonl", help="a file (one a rank), http://… or kafka://…")
    return parser.parse_args()


if __name__ == "__main__":
    main()
