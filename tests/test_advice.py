"""Advice follows the cause; names from telemetry never become part of a command."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.evidence import Certainty, Evidence
from detectors.incident import Advice
from firstfault.telemetry import EventKind

from .evidence_builders import (
    EIGHT,
    but,
    divergence,
    drift,
    event,
    explosion,
    labels,
    mesh,
    nonfinite,
    sight,
    verdict,
)


def advice(*found: Evidence, **facts: Any) -> dict[str, Advice]:
    return {step.action: step for step in verdict(*found, **facts).incidents[0].advice}


OWN = divergence([3], 1205, 1195, metric="repeat_checksum/canary")


def test_a_bad_device_is_drained_diagnosed_and_the_run_restored() -> None:
    saved = (event(EventKind.CHECKPOINT, 1000, path="/c/iter 1000"),)
    steps = advice(divergence([3], 1200, 1190), OWN, labels=labels({3: "node-07"}), checkpoints=saved)
    assert list(steps)[:2] == ["drain_host", "run_diagnostics"]
    assert steps["drain_host"].target == "node-07"
    assert shlex.split(steps["drain_host"].command or "")[:4] == [
        "scontrol", "update", "nodename=node-07", "state=drain",
    ]  # fmt: skip
    assert steps["restore_checkpoint"].target == "/c/iter 1000"
    assert steps["replay_iterations"].target == "1196 to 1200 on another device"


def test_without_a_host_the_rank_is_named_and_no_command_guessed() -> None:
    step = advice(divergence([3], 1200, 1190))["drain_host"]
    assert (step.target, step.command) == ("the host of rank 3", None)


def test_hosts_of_a_tie_are_diagnosed_and_not_drained() -> None:
    pair = divergence([0, 1], 1200, 1190, is_tie=True)
    facts: dict[str, Any] = {
        "ranks": (0, 1, 2),
        "layout": mesh(("dp", 3)),
        "labels": labels({0: "a", 1: "b"}),
    }
    steps = verdict(pair, **facts).incidents[0].advice
    assert [step.target for step in steps if step.action == "run_diagnostics"] == ["a", "b"]
    assert "drain_host" not in [step.action for step in steps]
    assert "collect_telemetry" in [step.action for step in steps]


@pytest.mark.parametrize(
    ("found", "action"),
    [
        (explosion(50), "lower_learning_rate"),
        (explosion(50), "clip_gradients"),
        (nonfinite(sight("nonfinite_input", [5], but(5))), "clean_data"),
        (nonfinite(sight("loss", [5], but(5)), sight("nonfinite_logits", clean=EIGHT)), "print_in_loss"),
        (nonfinite(sight("loss", [5], but(5)), detail={"value": "Infinity"}), "use_wider_type"),
        (nonfinite(sight("grad_norm", EIGHT)), "collect_telemetry"),
        (drift(1000, 950, 1100), "collect_telemetry"),
        (divergence([3], 1200, 1190, metric="grad_checksum"), "test_collectives"),
    ],
)
def test_each_cause_has_its_step(found: Evidence, action: str) -> None:
    assert action in advice(found)


def test_growth_without_a_known_cause_asks_for_what_would_tell_causes_apart() -> None:
    found = explosion(1500, 1490)
    of_loss = verdict(found, metrics=("loss",)).incidents[0]
    assert "no learning rate was reported" in of_loss.causes[0].because[0]
    assert advice(found, metrics=("loss",))["collect_telemetry"].target == (
        "lr, grad_norm and local_grad_norm on every rank"
    )
    known = ("loss", "lr", "grad_norm", "local_grad_norm")
    assert "collect_telemetry" not in advice(found, metrics=known)
    assert "without a change" in verdict(found, metrics=known).incidents[0].causes[0].because[0]


def test_a_suspicion_does_not_ask_to_restore() -> None:
    assert "restore_checkpoint" not in advice(divergence([3], 1200, 1190, certainty=Certainty.SUSPECTED))


def test_steps_are_not_repeated() -> None:
    steps = verdict(divergence([3], 1200, 1190), OWN).incidents[0].advice
    assert len(steps) == len(set(steps))


HOSTILE = [
    "x; rm -rf /",
    "$(reboot)",
    "-oProxyCommand=reboot",
    "a'b",
    "a\nb",
    "node[0-999]",
    "a,b",
    "",
    "\u202egnp",
    "é",
]


@pytest.mark.parametrize("host", HOSTILE)
def test_a_hostile_host_name_stays_one_word(host: str) -> None:
    steps = verdict(divergence([3], 1200, 1190), OWN, labels=labels({3: host})).incidents[0].advice
    _is_harmless(steps, host)
    assert all(step.command is None for step in steps if step.action == "drain_host")


@settings(max_examples=200, deadline=None)
@given(host=st.text(max_size=40))
def test_any_host_name_stays_one_word(host: str) -> None:
    steps = verdict(divergence([3], 1200, 1190), OWN, labels=labels({3: host})).incidents[0].advice
    _is_harmless(steps, host)


def _is_harmless(steps: tuple[Advice, ...], host: str) -> None:
    for step in steps:
        if step.command is None:
            continue
        assert step.command.isascii() and step.command.isprintable()
        words = shlex.split(step.command)
        match words:
            case ["ssh", "--", name, "dcgmi", "diag", "-r", "3"]:
                assert name == host
            case ["scontrol", "update", name, "state=drain", _]:
                assert name == f"nodename={host}"
            case _:
                raise AssertionError(f"unexpected command {words}")
