"""Hosts over all runs: who was accused, how often alone, and whether that is more than chance."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

from ingest.alignment import AlignmentConfig
from service.feedback import precision_interval
from service.host_chance import SIGNIFICANT, upper_tail
from service.pipeline import Pipeline, PipelineConfig
from service.run_hosts import hosts_of
from service.store_config import StoreConfig

from .api_builders import Json, Seeded, canonical, seeded
from .service_builders import a_verdict, an_incident, batches_of


@pytest.fixture
def api(tmp_path: Path, store_config: StoreConfig) -> Iterator[Seeded]:
    with seeded(tmp_path, store_config=store_config) as one:
        yield one


def accusing(name: str, *hosts: str | None, device: str | None = None, **changes: Any) -> Json:
    """An incident whose suspects are one rank on each of ``hosts``."""
    suspects = [{"rank": at, "host": host, "device": device, "why": ""} for at, host in enumerate(hosts)]
    first = {"ranks": [*range(len(hosts))], "rank_count": len(hosts), "suspects": suspects}
    return an_incident(id=name, first=first, **changes)


def put(api: Seeded, run: str, *incidents: Json, fleet: Sequence[str] = ()) -> None:
    verdict = a_verdict(run, *incidents)
    api.store.save_verdict(api.tenure, ["0"], verdict, canonical(verdict), hosts=fleet)


def hosts(api: Seeded, query: str = "") -> list[Json]:
    found: list[Json] = api.client().get(f"/v1/hosts{query}").json()["items"]
    return found


def host(api: Seeded, name: str) -> Json:
    found: Json = api.client().get(f"/v1/hosts/{quote(name, safe='')}").json()
    return found


FLEET = [f"node-{number:02d}" for number in range(20)]


def test_a_host_that_is_accused_alone_again_and_again_comes_first_and_is_more_than_chance(
    api: Seeded,
) -> None:
    for number in range(4):
        put(api, f"bad-{number}", accusing(f"a{number}", "node-07", device=f"GPU-{number % 2}"), fleet=FLEET)
    put(api, "other", accusing("b", "node-03"), fleet=FLEET)
    put(api, "tie", accusing("c", "node-03", "node-07"), fleet=FLEET)
    put(api, "fine", fleet=FLEET)
    first, second = hosts(api)
    assert (first["host"], first["incidents"], first["as_sole_suspect"], first["as_one_of_several"]) == (
        "node-07",
        5,
        4,
        1,
    )
    assert (first["runs"], first["runs_seen"], first["devices"]) == (5, 7, ["GPU-0", "GPU-1"])
    chance = first["chance"]
    # five runs accuse a host alone, each with 1/20: at least four of five, times twenty hosts
    exact = 20 * sum(math.comb(5, k) * 0.05**k * 0.95 ** (5 - k) for k in (4, 5))
    assert chance["state"] == "more_than_chance"
    assert chance["p_value"] == pytest.approx(exact, rel=1e-5)
    assert (chance["expected_runs"], chance["hosts_compared"]) == (0.25, 20)
    assert chance["why"].startswith("accused alone in 4 of the 5 runs")
    assert (second["host"], second["chance"]["state"]) == ("node-03", "may_be_chance")
    assert second["newest"]["id"] == "c"


def test_many_incidents_of_one_run_are_no_record(api: Seeded) -> None:
    put(api, "one", *(accusing(f"a{number}", "node-07") for number in range(6)), fleet=FLEET)
    (found,) = hosts(api)
    assert (found["incidents"], found["runs"], found["chance"]["state"]) == (6, 1, "may_be_chance")


def test_without_the_hosts_of_a_run_nothing_is_said_of_chance(api: Seeded) -> None:
    put(api, "one", accusing("a", "node-07"))
    put(api, "two", accusing("b", "node-07"))
    (found,) = hosts(api)
    assert (found["runs_seen"], found["chance"]["state"], found["chance"]["p_value"]) == (
        None,
        "unknown",
        None,
    )
    assert "no run that accuses a host alone named this one" in found["chance"]["why"]


def test_what_is_not_held_against_a_host(api: Seeded) -> None:
    put(api, "suspected", accusing("a", "node-01", certainty="suspected"), fleet=FLEET)
    put(api, "gone", accusing("b", "node-02"), fleet=FLEET)
    put(api, "gone", fleet=FLEET)
    put(api, "false", accusing("c", "node-03"), fleet=FLEET)
    put(api, "half", accusing("d", "node-04", None), fleet=FLEET)
    note = {"state": "false_alarm", "note": "a test"}
    assert api.client().post("/v1/incidents/c/state", json=note).status_code == 200
    found = {one["host"]: one for one in hosts(api)}
    assert sorted(found) == ["node-03", "node-04"]
    assert (found["node-03"]["incidents"], found["node-03"]["false_alarms"]) == (0, 1)
    assert found["node-04"]["as_sole_suspect"] == 0  # the other suspect may be elsewhere
    assert (host(api, "node-05")["incidents"], host(api, "node-05")["history"]) == (0, [])
    assert api.client().get("/v1/hosts/node-99").status_code == 404


def test_one_host_shows_its_incidents_and_devices_that_were_elsewhere_too(api: Seeded) -> None:
    odd = "rack/7 <b>"
    put(api, "one", accusing("a", odd, device="GPU-a"), fleet=[odd])
    put(api, "two", accusing("b", odd, "node-02", device="GPU-a"), fleet=[odd])
    found = host(api, odd)
    assert [(one["id"], one["is_sole_suspect"]) for one in found["history"]] == [("b", False), ("a", True)]
    assert found["device_history"] == [
        {"device": "GPU-a", "incidents": 2, "as_sole_suspect": 1, "other_hosts": ["node-02"]}
    ]
    assert (found["host"], found["more"]) == (odd, False)


def test_hosts_come_in_pages(api: Seeded) -> None:
    for number in range(5):
        put(api, f"run-{number}", accusing(f"a{number}", f"node-{number}"))
    seen, query = [], "?limit=2"
    while query:
        page = api.client().get(f"/v1/hosts{query}").json()
        seen += [one["host"] for one in page["items"]]
        query = f"?limit=2&cursor={page['next']}" if page["next"] else ""
    assert seen == ["node-4", "node-3", "node-2", "node-1", "node-0"]


def test_the_hosts_of_a_run_are_those_of_its_labels_and_of_its_start() -> None:
    start = {"run": "r", "event": "run_start", "rank": 0, "iteration": 0, "mesh": [["dp", 2]]}
    records = [{"run": "r", "rank": rank, "iteration": t, "loss": 1.0} for t in range(3) for rank in (0, 1)]
    lines = [{**start, "hosts": {"0": "a", "1": "b"}}, {**records[0], "host": "c"}, *records[1:]]
    pipeline = Pipeline(PipelineConfig(alignment=AlignmentConfig(lateness_iterations=1)))
    for batch in batches_of([json.dumps(line).encode() for line in lines]):
        pipeline.feed(batch)
    assert hosts_of(pipeline.aligners("r")) == {"a", "b", "c"}


def test_the_tail_is_that_of_all_ways_in_which_it_can_come_about() -> None:
    chances = [0.1, 0.5, 0.25, 0.05]
    for least in range(6):
        exact = sum(
            math.prod(chances[at] if at in hit else 1 - chances[at] for at in range(4))
            for size in range(least, 5)
            for hit in combinations(range(4), size)
        )
        assert upper_tail(chances, least) == pytest.approx(exact)


def test_of_fleets_without_a_bad_host_one_in_a_hundred_shows_one() -> None:
    """20 runs on 50 hosts, one fault each, 400 fleets: the worst host of each against the bound."""
    rng = np.random.default_rng(7)
    alarms = 0
    for _ in range(400):
        worst = np.bincount(rng.integers(50, size=20), minlength=50).max()
        alarms += 50 * upper_tail([1 / 50] * 20, int(worst)) < SIGNIFICANT
    assert alarms <= 9  # 4 expected at most; more than 9 has a probability under 1 %


def test_an_interval_is_wide_for_few_and_narrow_for_many() -> None:
    assert precision_interval(0, 0) == (0.0, 1.0)
    few, many = precision_interval(9, 10), precision_interval(900, 1000)
    assert few[0] < many[0] < 0.9 < many[1] < few[1]


def test_feedback_is_counted_by_detector_and_pattern(api: Seeded) -> None:
    stuck = {**an_incident()["evidence"][0], "detector": "curve_drift"}
    put(api, "one", an_incident(id="a1"), an_incident(id="a2"), an_incident(id="a3"))
    put(api, "two", an_incident(id="b1", pattern="stuck", evidence=[stuck, stuck]))
    put(api, "three", an_incident(id="c1"))
    put(api, "three")
    client = api.client()
    for name, state in (
        ("a1", "resolved"),
        ("a2", "false_alarm"),
        ("a3", "acknowledged"),
        ("b1", "false_alarm"),
    ):
        client.post(f"/v1/incidents/{name}/state", json={"state": state, "note": "seen"})
    vote, drift = sorted(client.get("/v1/detectors").json()["items"], key=lambda one: one["detector"])[::-1]
    if vote["detector"] != "checksum_vote":
        vote, drift = drift, vote
    counted = ("fired", "confirmed", "withdrawn", "judged_real", "false_alarms")
    assert [vote[name] for name in counted] == [4, 3, 1, 1, 1]
    assert (vote["precision"]["judged"], vote["precision"]["estimate"]) == (2, 0.5)
    assert (drift["patterns"][0]["pattern"], drift["false_alarms"]) == ("stuck", 1)
    assert drift["precision"]["estimate"] == 0.0
    # a mark that turns out to be wrong counts no more; one that new evidence overtakes does
    client.post("/v1/incidents/a2/state", json={"state": "open", "note": "it was one"})
    put(api, "two", an_incident(id="b1", pattern="stuck", severity="critical", evidence=[stuck]))
    after = {one["detector"]: one["false_alarms"] for one in client.get("/v1/detectors").json()["items"]}
    assert after == {"checksum_vote": 0, "curve_drift": 1}


@pytest.mark.parametrize("name", ["rack\0 7", "rack\n7", "h" * 1024, "héte/../..", "100%", "' OR 1=1 --"])
def test_a_host_of_any_name_is_stored_again_and_again_and_found(api: Seeded, name: str) -> None:
    for number in range(2):
        accused = accusing("a", name, detected_at_iteration=1200 + number)
        put(api, "run", accused, fleet=[name, f"{name[:9]}+"])
    (listed,) = hosts(api)
    assert listed["as_sole_suspect"] == 1
    assert [one["id"] for one in host(api, name)["history"]] == ["a"]
    found = api.client().get("/v1/incidents", params={"host": name}).json()["items"]
    assert [one["id"] for one in found] == ["a"]
    shown = json.loads(api.client().get("/v1/incidents/a").content)["incident"]["first"]["suspects"]
    assert shown[0]["host"] == name
