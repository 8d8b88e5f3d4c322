"""The fault-injection rig: processor time of an iteration in each layout, and what one graph for all saves.

python -m bench.rig
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from firstfault.drill.rig import LAYOUTS, Fault, Job, Kind, LayoutName, ModelSize, Site, data_parallel
from firstfault.drill.rig.engine import fork, run, settle_torch
from firstfault.drill.rig.links import OneProcess
from firstfault.drill.rig.session import Session

ITERATIONS = 25
"""Timed at once: the canary and the evaluation of the optimizer's checksum come as often as they do."""
ROUNDS = 6


def main() -> None:
    """Print one line a figure."""
    settle_torch()
    for name, layout in LAYOUTS.items():
        job = Job(seed=1, layout=layout, model=ModelSize(layers=max(2, layout.size("pp"))))
        print(f"rig {name}, {layout.ranks} ranks: {_iteration_ms(job):.1f} ms an iteration", flush=True)
    eight, one = (_iteration_ms(Job(seed=1, layout=data_parallel(ranks))) for ranks in (8, 1))
    print(f"rig: eight ranks in one graph cost {eight / one:.1f} x one rank", flush=True)
    print(f"rig: a twin and ten faults cost {_shared():.2f} x eleven runs", flush=True)


def _iteration_ms(job: Job) -> float:
    """The best of some rounds: what else the machine does only adds."""
    session = Session(job, OneProcess(job.layout.ranks), None)

    def advance() -> None:
        for _ in range(ITERATIONS):
            for _ in session.advance():
                pass

    advance()
    return 1e3 * min(_seconds(advance) for _ in range(ROUNDS)) / ITERATIONS


def _shared() -> float:
    """Time of a fork, as a share of that of the runs one by one."""
    job = Job(seed=1, layout=LAYOUTS[LayoutName.DP], iterations=60)
    fault = Fault(kind=Kind.BIT_FLIP, site=Site.PARAMETER, iteration=0, rank=1, bit=20)
    faults = [replace(fault, iteration=at) for at in range(20, 50, 3)]
    together = _seconds(lambda: [len(branch.said) for branch in fork(job, faults)])
    apart = _seconds(lambda: [len(list(run(job, one))) for one in (None, *faults)])
    return together / apart


def _seconds(work: Callable[[], object]) -> float:
    """Processor time of the work."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


if __name__ == "__main__":
    main()
