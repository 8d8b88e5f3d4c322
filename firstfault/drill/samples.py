"""The sample logs: one run of every scenario, and the manifest that holds the truth about them.

The truth of an injected fault is its plan. Only an explosion has none that is exact: the learning rate
is wrong from an iteration on, but the curves grow when the model gives way; that iteration is measured
(`growth_onset`).
"""

from __future__ import annotations

import gzip
import json
import shlex
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from . import default_out, run_drill
from .plans import DrillConfig, DrillError, Plan, plan
from .scenarios import SCENARIOS

MANIFEST = "manifest.toml"
_GROWN = 2.0
"""A gradient norm of twice its median has left the noise of the drill's healthy runs (about 25 %)."""
_EXPLODED = 10.0
"""The ten-fold that confirms an explosion."""
_ONSET_SLACK_ITERATIONS = 2
"""Growth starts out of noise: beside the stretch from onset to ten-fold, one curve or another parts
from it this much sooner or later."""
_HEADER = """\
# What is true of each log in this folder. Written by
# `python -m firstfault.drill.samples sample_logs`; `command` makes one log alone, the same bytes.
#
# label      the verdict the run deserves
# ranks      the ranks at fault; empty for a fault of all ranks, or none
# iteration  the fault's iteration: where the bit flipped, the bad sample was read, the matmul began to err.
#            Silent drift is observed at a cadence, so a verdict gives an interval that contains it. For an
#            explosion: the first iteration of the stretch, all above twice the median before, in which
#            the global gradient norm grows ten-fold; a detector may differ by tolerance_iterations.
# phase      where in the iteration the first bad value can be seen
# lr_wrong_from  first iteration whose update uses the wrong learning rate (explosions)
# annotation what a healthy verdict should mention
"""


def write_samples(
    folder: Path,
    scenarios: Iterable[str] = tuple(SCENARIOS),
    progress: Callable[[str, int, int], None] | None = None,
) -> list[Path]:
    """Run the scenarios with their own seeds into ``folder`` and write the manifest beside them.

    ``progress`` is told (scenario, iterations done, iterations in all). The manifest lists every
    scenario whose log is in the folder.

    Raises:
        DrillError: an unknown scenario, or torch is not installed.
        OSError: the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name in scenarios:

        def tell(done: int, total: int, name: str = name) -> None:
            if progress is not None:
                progress(name, done, total)

        written.append(run_drill(name, out=folder, progress=tell))
    write_manifest(folder)
    return written


def write_manifest(folder: Path) -> Path:
    """Write the truth of every sample log that is in ``folder``."""
    entries = []
    for name in SCENARIOS:
        config = DrillConfig(scenario=name)
        log = default_out(config, folder)
        if log.exists():
            entries.append(_entry(plan(config), log))
    path = folder / MANIFEST
    path.write_text(_HEADER + "".join(entries), encoding="utf-8")
    return path


def growth_onset(grad_norm_T: Sequence[float]) -> tuple[int, int] | None:
    """(onset, ten-fold): where the norm first grows ten-fold over the median of all before, and the
    first index of the unbroken stretch above twice that median which leads there.

    A norm that is not finite counts as grown. None if nothing grows ten-fold.

    >>> growth_onset([1.0, 1.1, 0.9, 5.0, 1.0, 1.2, 3.0, 30.0, 400.0])
    (6, 7)
    """
    for tenfold in range(1, len(grad_norm_T)):
        median = statistics.median(grad_norm_T[:tenfold])
        if not grad_norm_T[tenfold] < _EXPLODED * median:
            onset = tenfold
            while onset > 1 and not grad_norm_T[onset - 1] < _GROWN * median:
                onset -= 1
            return onset, tenfold
    return None


def _entry(planned: Plan, log: Path) -> str:
    scenario = planned.scenario
    command = ["firstfault", "drill", "--scenario", scenario.name, "--seed", str(planned.seed)]
    command += ["--out", f"sample_logs/{log.name}"]
    ranks = [] if planned.fault_rank is None else [planned.fault_rank]
    fields: dict[str, object] = {
        "name": scenario.name,
        "file": log.name,
        "label": scenario.label,
        "ranks": ranks,
    }
    if scenario.label == "gradient_explosion":
        fields |= _explosion(planned, log)
    elif scenario.label != "healthy":
        fields["iteration"] = planned.fault_iteration
    fields |= {"phase": scenario.phase, "annotation": scenario.annotation}
    fields |= {"command": shlex.join(command), "seed": planned.seed}
    lines = [f"{name} = {json.dumps(value)}" for name, value in fields.items() if value is not None]
    return "\n[[logs]]\n" + "\n".join(lines) + "\n"


def _explosion(planned: Plan, log: Path) -> dict[str, object]:
    found = growth_onset(_grad_norms(log))
    if found is None:
        raise DrillError(f"scenario {planned.scenario.name} must explode, but no gradient norm grew ten-fold")
    onset, tenfold = found
    return {
        "iteration": onset,
        "tolerance_iterations": tenfold - onset + _ONSET_SLACK_ITERATIONS,
        "lr_wrong_from": planned.fault_iteration,
    }


def _grad_norms(log: Path) -> list[float]:
    """The global gradient norm of rank 0, by iteration."""
    with gzip.open(log, "rt", encoding="utf-8") as text:
        records = [json.loads(line) for line in text]
    return [float(record["grad_norm"]) for record in records if record["rank"] == 0 and "grad_norm" in record]


def _tell(scenario: str, done: int, total: int) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{scenario}: iteration {done} of {total}\x1b[K" + "\n" * (done == total))


if __name__ == "__main__":
    write_samples(Path(sys.argv[1]), sys.argv[2:] or tuple(SCENARIOS), _tell)
