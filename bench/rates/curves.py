"""Cases of the detectors of whole curves."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from detectors.base import Detector
from detectors.curve_drift import CurveDrift
from detectors.evaluation import Evaluation
from detectors.explosion import Explosion
from tests.block_builders import block, masked
from tests.curve_builders import Scenario, Series, block_of, make_scenario

from .case import Case, Run

_OF_EXPLOSION: Mapping[str, str] = {
    "e_fast": "loss grows by 15 to 40 % a step",
    "e_slow": "loss doubles in 120 to 200 steps",
    "e_grad": "gradient norm grows by 3 to 8 % a step",
}
_OF_DRIFT: Mapping[str, str] = {
    "d_shift": "level 2.5 to 4 % higher for good",
    "d_slope": "loss rises by 8 to 15 % till the end",
    "d_const": "one value again and again",
}
_HEALTHY: Mapping[str, str] = {
    "h_exp": "healthy, exponential decline",
    "h_power": "healthy, power law",
    "h_warmup": "healthy, a hump after warm-up",
    "h_stepdecay": "healthy, steps of the learning rate",
    "h_noisy": "healthy, noise of 22 %",
    "b_spike": "healthy, spikes that recover",
    "b_datamix": "healthy, another data mix",
    "b_lrrestart": "healthy, a warm restart",
    "b_converged": "healthy, converged",
}


def explosion() -> list[Case]:
    """Growth of three kinds, and all that is healthy."""
    return [_scenario(Explosion, name, words) for name, words in {**_OF_EXPLOSION, **_HEALTHY}.items()]


def curve_drift() -> list[Case]:
    """Shifts, slopes and stuck values, and all that is healthy."""
    return [_scenario(CurveDrift, name, words) for name, words in {**_OF_DRIFT, **_HEALTHY}.items()]


def evaluation() -> list[Case]:
    """An accuracy on 500 samples each tenth iteration that falls for good, or only wanders, or sinks."""
    falls = [
        Case(name=f"accuracy falls by {fall} %", make=Evaluation, draw=_evaluated(fall / 100), is_live=True)
        for fall in (5, 10, 20)
    ]
    return [
        *falls,
        Case(name="healthy, it still rises", make=Evaluation, draw=_evaluated(0.0)),
        Case(name="healthy, overfitting", make=Evaluation, draw=_evaluated(0.0, sinks=0.2)),
        Case(name="falls with the training loss", make=Evaluation, draw=_evaluated(0.0, both=0.1)),
    ]


def _scenario(make: Callable[[], Detector], name: str, words: str) -> Case:
    def draw(rng: np.random.Generator) -> Run:
        scenario: Scenario = make_scenario(name, int(rng.integers(1 << 31)))
        return Run(block=block_of(scenario.columns), onset=scenario.onset)

    return Case(name=words, make=make, draw=draw)


def _evaluated(fall: float, *, sinks: float = 0.0, both: float = 0.0) -> Callable[[np.random.Generator], Run]:
    def draw(rng: np.random.Generator) -> Run:
        t: Series = np.arange(1200.0)
        onset = 10 * int(rng.integers(40, 80))
        level_T = 0.2 + 0.5 * (1 - np.exp(-t / 200)) - sinks * np.maximum(0.0, (t - 400) / 800)
        level_T[onset:] *= 1 - max(fall, both)
        accuracy_T = rng.binomial(500, level_T) / 500
        loss_T = (2.0 + 2.0 * np.exp(-t / 200)) * np.exp(rng.normal(0.0, 0.02, len(t)))
        loss_T[onset:] *= 1 + both
        whole = block(loss=loss_T, eval_accuracy=masked(accuracy_T, t % 10 != 0))
        return Run(block=whole, onset=onset if fall else None)

    return draw
