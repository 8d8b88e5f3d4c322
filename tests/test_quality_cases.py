"""What the quality benchmark makes, cuts, keeps and publishes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.quality.__main__ import main
from bench.quality.cache import load_plain, load_recording, save_plain, save_recording
from bench.quality.case import FIRST_BENCHMARK_SEED, Origin, Recording, Tier, Truth
from bench.quality.curve_cases import make_curve
from bench.quality.curve_faults import BENIGN, FAULTS
from bench.quality.failures import command, wrong
from bench.quality.judging import Judgement, judge
from bench.quality.outliers import Outcome, Trial
from bench.quality.peers import PEERS, alarms_of
from bench.quality.plan import curve_spec, tasks, twin_of
from bench.quality.publishing import BEGIN, END, README, RESULTS, with_section
from bench.quality.results import as_text, figures
from bench.quality.tables import page
from bench.quality.tiers import curve_columns, cut

from .quality_builders import a_found, a_row


def line(**fields: object) -> bytes:
    return json.dumps({"run": "r", **fields}).encode()


def loss_of(recording: Recording) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array(curve_columns(recording.lines)["loss"])


@pytest.mark.parametrize("family", [*FAULTS, *BENIGN])
def test_a_synthetic_curve_is_its_seed_and_equals_its_twin_up_to_the_onset(family: str) -> None:
    spec = curve_spec(family, 7)
    recording = make_curve(spec)
    assert make_curve(spec).lines == recording.lines
    truth = recording.truths[spec.tiers[0]]
    twin = twin_of(spec)
    assert (twin is None) == (family in BENIGN) == (truth.onset is None)
    if twin is not None and truth.onset is not None:
        seen, was = loss_of(recording), loss_of(make_curve(twin))
        at = truth.onset // recording.log_interval
        assert recording.healthy_points == at
        assert (seen[:at] == was[:at]).all()
        assert make_curve(twin).truths[spec.tiers[0]].label == "healthy"


def test_a_shift_is_as_large_as_its_truth_says() -> None:
    spec = curve_spec("level_shift", 3)
    recording, twin = make_curve(spec), make_curve(replace(spec, detail={"twin": True}))
    truth = recording.truths[Tier.CURVE]
    assert truth.onset is not None
    at = truth.onset // recording.log_interval
    ratio = np.log(loss_of(recording)[at:] / loss_of(twin)[at:])
    assert np.ptp(ratio) == pytest.approx(0.0, abs=1e-9)
    assert 3.0 <= truth.facts["sigmas"] <= 8.0


def test_a_tier_shows_what_its_jobs_report_and_no_more() -> None:
    metrics = {"loss": 2.0, "param_checksum": "0a", "canary_loss": 1.0, "local_grad_norm": 3.0, "lr": 0.1}
    lines = [
        line(event="run_start", rank=0, iteration=0, mesh=[["dp", 2]]),
        line(rank=0, iteration=0, **metrics),
        line(rank=1, iteration=0, **{**metrics, "loss": 4.0}),
        line(event="checkpoint", rank=0, iteration=0),
        line(rank=0, iteration=1, loss=2.0),
        line(rank=1, iteration=1, loss="NaN"),
    ]
    ranks, sums, canary = (cut(lines, tier) for tier in (Tier.RANKS, Tier.CHECKSUMS, Tier.CANARY))
    assert set(json.loads(ranks[1])) == {"run", "rank", "iteration", "loss", "local_grad_norm", "lr"}
    assert set(json.loads(sums[1])) - set(json.loads(ranks[1])) == {"param_checksum"}
    assert canary == lines
    curve = [json.loads(one) for one in cut(lines, Tier.CURVE)]
    assert curve[0] == {"run": "r", "iteration": 0, "loss": 3.0, "lr": 0.1}
    assert [one.get("event") for one in curve] == [None, "checkpoint", None]
    assert curve[2]["loss"] == "NaN"


def test_a_recording_is_kept_whole(tmp_path: Path) -> None:
    truth = Truth(label="nan", onset=5, ranks=(1,), suspects=(1, 2), causes=("data",), facts={"rate": 0.5})
    kept = Recording(lines=[b"a", b"b"], truths={Tier.RANKS: truth}, logged=2, healthy_points=1)
    save_recording(tmp_path / "deep" / "one.zst", kept)
    assert load_recording(tmp_path / "deep" / "one.zst") == kept
    assert load_recording(tmp_path / "two.zst") is None


def test_a_log_is_judged_as_replay_judges_it() -> None:
    recording = make_curve(curve_spec("clean_nan", 1))
    found = judge(recording.lines)
    truth = recording.truths[Tier.CURVE]
    assert (found.label, found.confirmed[0].iteration) == ("nan", truth.onset)
    assert Judgement.from_plain(json.loads(json.dumps(found.to_plain()))) == found


def test_only_seeds_from_a_million_on_are_measured_and_no_family_is_left_out() -> None:
    planned = tasks(FIRST_BENCHMARK_SEED, is_full=False, peers=("losslint",), recorded=None)
    specs = [spec for task in planned for spec in task.specs]
    assert min(spec.seed for spec in specs) == FIRST_BENCHMARK_SEED
    assert {spec.family for spec in specs if spec.origin is Origin.CURVE} == {*FAULTS, *BENIGN}
    assert len({spec.key for spec in specs}) == len(specs)
    assert any(task.peers for task in planned)


def test_findings_of_a_peer_become_alarms_of_our_labels() -> None:
    findings = [("nan_inf", 7.0, "error"), ("nan_inf", 8.0, "error"), ("stagnation", None, "info")]
    alarms = alarms_of("losslint", findings)
    assert [(one.iteration, set(one.labels)) for one in alarms] == [(7, {"nan"}), (8, {"nan"})]
    assert [one.name for one in PEERS] == ["losslint", "trainspotter", "runmedic", "trainproof", "trainpulse"]


def test_what_went_wrong_is_listed_with_the_command_that_makes_it_again() -> None:
    missed = a_row("silent_drift", onset=500, family="level_shift", seed=3)
    assert list(wrong(missed)) == ["missed"]
    assert list(wrong(a_row("healthy", a_found("nan", 3)))) == ["false alarm"]
    assert list(wrong(a_row("nan", a_found("nan", 500), onset=500))) == []
    assert command(missed) == "python -m bench.quality show curve level_shift 3 curve | firstfault replay -"


def test_the_section_of_the_readme_is_made_from_the_figures_alone() -> None:
    trial = Trial(noise="gaussian", sigmas=6.0, is_lasting=False, iterations=8000, seed=0)
    rows = [a_row("healthy"), a_row("nan", a_found("nan", 500), onset=500)]
    plain = json.loads(
        as_text(figures(rows, [Outcome(trial=trial, cases=9, ours=8, rule=5)], [], [], is_full=False))
    )
    readme = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    once = with_section(readme, plain)
    assert with_section(once, plain) == once
    assert once.startswith("before\n") and once.endswith("\nafter\n") and "\nold\n" not in once
    assert "| nan | 0 | 1 |" in once
    assert "6 sigma, one step" in page(plain)
    with pytest.raises(ValueError, match="the page must hold"):
        with_section("no marks", plain)


@pytest.mark.parametrize("damage", [b"", b"{", b"[1]", b"\xff\xfe", b"(\xb5/\xfd\x04\x00"])
def test_what_is_damaged_in_the_cache_is_made_again(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "gone" / "case.json"
    assert load_plain(path) is None
    save_plain(path, {"alarms": []})
    assert load_plain(path) == {"alarms": []}
    path.write_bytes(damage)
    assert load_plain(path) is None
    assert load_recording(path) is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--limit", "0"], "must be a whole number >= 1, got '0'"),
        (["--part", "3/2"], "must be one of so many parts, as 2/8, got '3/2'"),
        (["--seeds-from", "-1"], "must be a whole number >= 0, got '-1'"),
        (["--without-peers", "--only", "gremlin"], "--only must be how the name of a family begins"),
        (["--recorded", "/nowhere"], "--recorded must be a folder of curves, got '/nowhere'"),
        (["show", "curve", "gremlin", "5"], "family of seed 5 must be one of"),
        (["show", "curve", "clean_nan", "5", "canary"], "tier must be one of curve, got 'canary'"),
    ],
)
def test_a_measurement_that_cannot_be_is_refused_with_the_rule(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert words in capsys.readouterr().err


def test_the_readme_and_the_page_say_what_was_measured_and_nothing_else() -> None:
    plain = json.loads((RESULTS / "quality.json").read_bytes())
    readme = README.read_text(encoding="utf-8")
    assert with_section(readme, plain) == readme
    assert (RESULTS / "quality.md").read_text(encoding="utf-8") == page(plain)
