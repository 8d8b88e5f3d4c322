"""Settings of the detectors reach them from the file, live and after a restart, and are held to bounds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from detectors.curve_drift import CurveDriftConfig
from detectors.explosion import ExplosionConfig
from detectors.loss_scale import LossScaleConfig
from detectors.registry import DetectorsConfig
from firstfault.telemetry import Record
from service.config import Settings, load_settings
from service.errors import ConfigError
from service.pipeline import Pipeline

from .curve_builders import Series
from .record_builders import Arrived, cut

ITERATIONS = 600


def loss_times(factor: float, stop: int = ITERATIONS) -> dict[str, Series]:
    """A flat noisy loss that is ``factor`` times as high from iteration 400 to ``stop``."""
    loss_T = 2.0 * np.exp(np.random.default_rng(0).normal(0.0, 0.01, ITERATIONS))
    loss_T[400:stop] *= factor
    return {"loss": loss_T}


def skips_in_a_row(skips: int) -> dict[str, Series]:
    """Finite gradients, but for ``skips`` skipped steps from iteration 300 on."""
    norm_T, skipped_T = np.ones(ITERATIONS), np.zeros(ITERATIONS)
    norm_T[300 : 300 + skips], skipped_T[300 : 300 + skips] = np.inf, 1.0
    return {"grad_norm": norm_T, "skipped": skipped_T}


def label(metrics: Mapping[str, Series], settings: Settings) -> str:
    """The label of a run of one rank, judged by a pipeline that is restored after every batch."""
    arrived: list[Arrived] = [
        Record(
            run="run", rank=0, iteration=i, metrics={name: float(at_T[i]) for name, at_T in metrics.items()}
        )
        for i in range(ITERATIONS)
    ]
    state = Pipeline(settings.pipeline, settings.detectors).snapshot()
    for batch in cut(arrived, [200]):
        pipeline = Pipeline(settings.pipeline, settings.detectors)
        pipeline.restore(state)
        pipeline.feed(batch)
        state = pipeline.snapshot()
    (verdict,) = pipeline.verdicts()
    return verdict.label.value


HIGHER = "[detectors.explosion]\nloss_rise = 1.9\nloss_slow_rise = 1.9\nstart_hold = 1.9"
COARSER = "[detectors.curve_drift]\nmin_step = 0.1\nmin_slope = 0.1\nsmall_step_sigmas = 1000.0"


@pytest.mark.parametrize(
    ("metrics", "before", "text", "after"),
    [
        (skips_in_a_row(10), "healthy", "[detectors.nonfinite]\nskips = 8", "nan"),
        (loss_times(2.2), "gradient_explosion", HIGHER, "healthy"),
        (loss_times(1.03), "silent_drift", COARSER, "healthy"),
    ],
)
def test_a_setting_of_a_detector_changes_what_it_finds(
    tmp_path: Path, metrics: Mapping[str, Series], before: str, text: str, after: str
) -> None:
    path = tmp_path / "firstfault.toml"
    path.write_text(text, encoding="utf-8")
    assert label(metrics, load_settings(environment={})) == before
    assert label(metrics, load_settings(path, environment={})) == after


def test_without_settings_every_detector_has_its_own_defaults() -> None:
    config = Settings().detectors
    assert config == DetectorsConfig() == Pipeline().detectors
    assert config.nonfinite == LossScaleConfig()
    assert config.explosion == ExplosionConfig()
    assert config.curve_drift == CurveDriftConfig()


@pytest.mark.parametrize(
    ("table", "line", "message"),
    [
        (
            "explosion",
            "loss_rize = 1.0",
            "explosion.loss_rize: unknown key; detectors.explosion has loss_rise",
        ),
        ("checksum_vote", "", "checksum_vote: unknown key; detectors has nonfinite, explosion, curve_drift"),
        ("explosion", "norm_rise = 1", "explosion.norm_rise must be >= 1.01, got 1.0"),
        ("explosion", "sigmas = nan", "explosion.sigmas must be >= 1.0, got nan"),
        ("nonfinite", "max_series = 10_001", "nonfinite.max_series must be <= 10000, got 10001"),
        ("curve_drift", "stuck_chance = 1.5", "curve_drift.stuck_chance must be <= 1.0, got 1.5"),
        (
            "explosion",
            "loss_hold = 0.5",
            "curve_drift.explosion_rise must be >= explosion.loss_hold, 0.5, got 0.4",
        ),
    ],
)
def test_what_cannot_be_is_named_in_full(tmp_path: Path, table: str, line: str, message: str) -> None:
    path = tmp_path / "firstfault.toml"
    path.write_text(f"[detectors.{table}]\n{line}\n", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_settings(path, environment={})
    assert str(caught.value).startswith(f"detectors.{message}")
