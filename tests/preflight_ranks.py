"""A launch of `firstfault canary`, for the tests: one interpreter that forks its ranks as a launcher would.

``python -m tests.preflight_ranks RANKS FAULTY ARGUMENT…``: rank FAULTY (-1: none) gets products wrong from
round 3 on, each other time. The exit status is the greatest of the ranks.
"""

from __future__ import annotations

import os
import socket
import sys

import torch
import torch.distributed

from firstfault.preflight import workload

SINCE = 3


def break_products() -> None:
    """From round 3 on the first of the two products of each round is wrong."""
    real, calls = workload.PARTS["products"], [0]

    def wrong(work: workload.Workload, number: int) -> torch.Tensor:
        calls[0] += 1
        return real(work, number) + (number >= SINCE and calls[0] % 2)

    workload.PARTS["products"] = wrong


def show_rounds() -> None:
    """Say on standard error when a round begins."""
    real = workload.Workload.round

    def shown(work: workload.Workload, number: int) -> dict[str, str]:
        sys.stderr.write(f"round {number}\n")
        sys.stderr.flush()
        return real(work, number)

    setattr(workload.Workload, "round", shown)  # noqa: B010  # in this process alone


def main(ranks: int, faulty: int, arguments: list[str]) -> int:
    torch.set_num_threads(1)
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    children = []
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "SLURMD_NODENAME": f"node-{rank}"}
            os.environ.update(place | {"RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": "0"})
            if rank == faulty:
                break_products()
            if rank == 0:
                show_rounds()
            os._exit(_run(arguments))
        children.append(child)
    return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)


def _run(arguments: list[str]) -> int:
    from service.cli import main as command

    sys.argv = ["firstfault", "canary", *arguments]
    try:
        command()
    except SystemExit as end:
        sys.stdout.flush()
        sys.stderr.flush()
        return end.code if isinstance(end.code, int) else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
