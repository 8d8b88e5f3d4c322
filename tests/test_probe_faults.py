"""Faults on purpose in real training processes: who sees each, and the verdict by way of Kafka."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from detectors.verdict import canonical_bytes
from firstfault.telemetry import Phase, contract_of
from ingest.blocks import RecordBatch
from service.local_kafka import LocalKafka
from service.pipeline import Pipeline

from .kafka_builders import a_source, read_until
from .probe_job import Case, JobSpec, free_port

pytestmark = [pytest.mark.torch, pytest.mark.kafka]

RANKS, STRUCK, STRIKE, ITERATIONS = 4, 2, 5, 8
LEARNED = 34
"""Reductions after which the linear checksum has learned what is right, and one more."""
TIMES = frozenset({"step_time_s"})
"""Metrics that two runs never share."""

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Struck:
    """A fault, and what must be seen of it."""

    site: str
    value: str
    """What the element is multiplied by, or what no number it becomes."""
    seen_by: str
    """The metric that differs first from the run without the fault."""
    seen_on: tuple[int, ...] = (STRUCK,)
    """The ranks on which it does."""
    label: str | None = None
    """The label of the verdict; None where one step of a short run tells nobody."""
    named: tuple[int, ...] = (STRUCK,)
    """The ranks that the verdict names; none where it can be any of them."""
    is_late: bool = False
    """Whether it strikes after the linear checksum has learned."""
    precision: str = "fp32"
    wrap: str = "ddp"

    @property
    def run(self) -> str:
        """The name of its run."""
        return "-".join((self.wrap, self.precision, self.site, self.value))

    @property
    def strike(self) -> int:
        """The iteration that it strikes."""
        return LEARNED if self.is_late else STRIKE

    @property
    def golden(self) -> str:
        """The run without it that is the same in all else."""
        kind = "-hook" if self.has_hook else "-recompute" if self.recomputes else ""
        return f"{self.wrap}-{self.precision}-golden{kind}"

    @property
    def has_hook(self) -> bool:
        """Whether the trainer brings a communication hook."""
        return self.site in ("reduce_in", "reduce_out", "reduce_all", "dropped")

    @property
    def recomputes(self) -> bool:
        """Whether activations are computed again."""
        return self.site == "recompute"

    def case(self) -> Case:
        """As the program takes it."""
        fault = {"site": self.site, "value": self.value, "rank": STRUCK, "iteration": self.strike}
        return Case(
            run=self.run,
            fault=fault,
            iterations=self.strike + 3,
            precision=self.precision,
            wrap=self.wrap,
            comm_hook=self.has_hook,
            recompute=self.recomputes,
        )


EVERYWHERE = tuple(range(RANKS))
FINITE = [
    Struck(site="data", value="8", seen_by="data_checksum"),
    Struck(site="forward", value="64", seen_by="loss"),
    Struck(site="act_grad", value="64", seen_by="act_grad_norm/layers.0"),
    Struck(site="weight_grad", value="64", seen_by="local_grad_norm"),
    Struck(
        site="reduce_in",
        value="-64",
        seen_by="grad_sketch_out/0",
        seen_on=EVERYWHERE,
        label="silent_drift",
        named=(),
        is_late=True,
    ),
    Struck(
        site="dropped",
        value="0",
        seen_by="grad_sketch_out/0",
        seen_on=EVERYWHERE,
        label="silent_drift",
        is_late=True,
    ),
    Struck(site="reduce_out", value="64", seen_by="grad_norm", label="silent_drift"),
    Struck(
        site="reduce_all",
        value="64",
        seen_by="grad_sketch_out/0",
        seen_on=EVERYWHERE,
        label="silent_drift",
        named=(),
        is_late=True,
    ),
    Struck(site="recompute", value="64", seen_by="repeat_checksum/act/layers.1.up", label="silent_drift"),
    Struck(site="loss_function", value="64", seen_by="loss"),
    Struck(site="moment", value="16", seen_by="optim_checksum", label="silent_drift"),
    Struck(site="second_moment", value="16", seen_by="optim_checksum", label="silent_drift"),
    Struck(site="parameter", value="4", seen_by="param_checksum", label="silent_drift"),
    Struck(site="loss_scale", value="4", seen_by="grad_sketch_in/0", label="silent_drift", precision="fp16"),
]
NONFINITE = [
    Struck(site="data", value="nan", seen_by="nonfinite_input", label="nan"),
    Struck(site="forward", value="inf", seen_by="nonfinite_loss", label="nan"),
    Struck(site="act_grad", value="nan", seen_by="act_grad_norm/layers.0", label="nan"),
    Struck(site="weight_grad", value="nan", seen_by="nonfinite_grad", label="nan"),
    Struck(
        site="reduce_in",
        value="nan",
        seen_by="nonfinite_reduced",
        seen_on=EVERYWHERE,
        label="nan",
        named=(),
    ),
    Struck(site="reduce_out", value="nan", seen_by="nonfinite_reduced", label="nan"),
    Struck(site="loss_function", value="nan", seen_by="nonfinite_loss", label="nan"),
    Struck(site="second_moment", value="nan", seen_by="nonfinite_param", label="nan"),
    Struck(site="moment", value="nan", seen_by="nonfinite_param", label="nan"),
    Struck(site="parameter", value="inf", seen_by="nonfinite_param", label="nan"),
]
SHARDED = [
    Struck(
        site="parameter", value="4", seen_by="param_checksum", label="silent_drift", named=(0, 2), wrap="hsdp"
    ),
    Struck(site="parameter", value="nan", seen_by="nonfinite_param", label="nan", wrap="fsdp"),
    Struck(site="data", value="8", seen_by="data_checksum", wrap="fsdp"),
    Struck(site="forward", value="inf", seen_by="nonfinite_loss", label="nan", wrap="fsdp"),
    Struck(site="weight_grad", value="64", seen_by="local_grad_norm", wrap="fsdp"),
    Struck(site="loss_function", value="nan", seen_by="nonfinite_loss", label="nan", wrap="hsdp"),
    Struck(site="act_grad", value="64", seen_by="act_grad_norm/layers.0", wrap="fsdp"),
    Struck(
        site="recompute",
        value="64",
        seen_by="repeat_checksum/act/layers.1.up",
        label="silent_drift",
        wrap="fsdp",
    ),
    # what goes wrong on the way in comes out at whoever holds that part of the sum
    Struck(site="reduce_in", value="-64", seen_by="grad_sketch_out/0", seen_on=(0,), wrap="fsdp"),
    Struck(
        site="dropped",
        value="0",
        seen_by="grad_sketch_out/0",
        seen_on=EVERYWHERE,
        label="silent_drift",
        is_late=True,
        wrap="fsdp",
    ),
    Struck(site="reduce_out", value="64", seen_by="grad_sketch_out/0", wrap="fsdp"),
    # any rank that the sum passed on its way may have done it
    Struck(site="reduce_out", value="nan", seen_by="nonfinite_reduced", label="nan", named=(), wrap="fsdp"),
    Struck(site="reduce_all", value="64", seen_by="grad_sketch_out/0", seen_on=EVERYWHERE, wrap="fsdp"),
    Struck(
        site="moment", value="16", seen_by="optim_checksum", label="silent_drift", named=(0, 2), wrap="hsdp"
    ),
    Struck(site="second_moment", value="16", seen_by="optim_checksum", wrap="fsdp"),
    Struck(site="loss_scale", value="4", seen_by="grad_sketch_in/0", precision="fp16", wrap="fsdp"),
]
FAULTS = [*FINITE, *NONFINITE, *SHARDED]
CANARY = 4
"""Iterations between canaries where a unit is wrong for good."""
UNITS = {
    f"unit-{site}": Case(
        run=f"unit-{site}",
        # a thousandth too much: no curve shows it, and all replicas take it over
        fault={"site": site, "value": "1.001", "rank": STRUCK, "iteration": STRIKE, "lasts": True},
        iterations=3 * CANARY,
        canary_every=CANARY,
    )
    for site in ("forward", "act_grad", "weight_grad")
}


@dataclass(frozen=True, slots=True)
class Launched:
    """What one launch left in its topic and folder."""

    values: Mapping[str, Mapping[tuple[int, int], Values]]
    """By run, then by iteration and rank."""
    verdicts: Mapping[str, Mapping[str, Any]]
    folder: Path


@pytest.fixture(scope="module")
def launched(
    broker: LocalKafka, topic_numbers: Iterator[int], tmp_path_factory: pytest.TempPathFactory
) -> Launched:
    """All trainings, in four processes, sent to Kafka and judged from there."""
    folder = tmp_path_factory.mktemp("launch")
    topic = made_topic(broker, f"probe-{next(topic_numbers)}")
    golden = {
        one.golden: Case(
            run=one.golden,
            iterations=max(other.strike for other in FAULTS if other.golden == one.golden) + 3,
            precision=one.precision,
            wrap=one.wrap,
            comm_hook=one.has_hook,
            recompute=one.recomputes,
        )
        for one in FAULTS
    }
    spec = JobSpec(
        folder=str(folder),
        ranks=RANKS,
        port=free_port(),
        cases=[*golden.values(), *(one.case() for one in FAULTS), *UNITS.values()],
        sink=f"kafka://{broker.address}/{topic}",
        layouts=True,
    )
    command = [sys.executable, "-m", "tests.probe_job", str(spec.write())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "the probe failed" not in done.stderr
    batches = read_all(broker, topic, sum(case.iterations for case in spec.cases) * RANKS)
    pipeline = Pipeline()
    for batch in batches:
        pipeline.feed(batch)
    assert not any(pipeline.rejected.values())
    verdicts = {name: json.loads(canonical_bytes(pipeline.verdict(name))) for name in pipeline.runs}
    return Launched(by_place(batches), verdicts, folder)


def made_topic(broker: LocalKafka, topic: str) -> str:
    """The topic, with two partitions; `new_topic` is of one test alone."""
    from kafka import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=[broker.address])
    admin.create_topics({topic: {"num_partitions": 2}}, wait_for_metadata=True)
    admin.close()
    return topic


def read_all(broker: LocalKafka, topic: str, records: int) -> list[RecordBatch]:
    """What came to the topic, which is ``records`` whole records at least."""
    source = a_source(broker.address, topic)
    batches = read_until(source, lambda came: sum(map(len, came)) >= records, 60.0)
    batches += read_until(source, lambda came: len(came) > 0, 2.0)  # what came behind the last of them
    source.close()
    return batches


def by_place(batches: Sequence[RecordBatch]) -> dict[str, dict[tuple[int, int], dict[str, Any]]]:
    """Values by run, then by iteration and rank."""
    found: dict[str, dict[tuple[int, int], dict[str, Any]]] = {}
    for batch in batches:
        for name, number in batch.numbers.items():
            for at in np.flatnonzero(number.present_N):
                place(found, batch, int(at))[name] = float(number.values_N[at])
        for name, checksum in batch.checksums.items():
            for at in np.flatnonzero(checksum.present_N):
                place(found, batch, int(at))[name] = int(checksum.low_N[at])
    return found


def place(
    found: dict[str, dict[tuple[int, int], dict[str, Any]]], batch: RecordBatch, at: int
) -> dict[str, Any]:
    """The values of the record ``at``."""
    run = found.setdefault(batch.runs[batch.run_N[at]], {})
    return run.setdefault((int(batch.iteration_N[at]), int(batch.rank_N[at])), {})


def differing(launched: Launched, fault: Struck) -> dict[int, dict[str, tuple[int, ...]]]:
    """By iteration, what differs from the run without the fault, and the ranks on which it does."""
    golden = launched.values[fault.golden]
    found: dict[int, dict[str, tuple[int, ...]]] = {}
    for (iteration, rank), values in sorted(launched.values[fault.run].items()):
        other = golden[iteration, rank]
        for name in values.keys() - TIMES:
            if not same(values[name], other[name]):
                metrics = found.setdefault(iteration, {})
                metrics[name] = (*metrics.get(name, ()), rank)
    return found


def same(one: Any, other: Any) -> bool:
    """Bit-equal, or both no number."""
    both_are_nan = isinstance(one, float) and math.isnan(one) and math.isnan(other)
    return bool(one == other or both_are_nan)


def phase_of(metric: str) -> Phase:
    """The part of an iteration in which a metric is taken."""
    return contract_of(metric).phase


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.run)
def test_the_signal_that_should_sees_a_fault_first_and_no_earlier_one_does(
    launched: Launched, fault: Struck
) -> None:
    found = differing(launched, fault)
    assert min(found) == fault.strike
    first = found[fault.strike]
    assert fault.seen_by in first
    assert first[fault.seen_by] == fault.seen_on
    assert min(map(phase_of, first)) is phase_of(fault.seen_by)


@pytest.mark.parametrize("fault", [one for one in FAULTS if one.label], ids=lambda fault: fault.run)
def test_the_verdict_by_way_of_kafka_names_rank_and_iteration(launched: Launched, fault: Struck) -> None:
    verdict = launched.verdicts[fault.run]
    first = verdict["incidents"][0]["first"]
    assert verdict["label"] == fault.label
    assert tuple(first["ranks"]) == fault.named
    assert first["interval"] == [fault.strike - 1, fault.strike]
    assert first["iteration"] == fault.strike


@pytest.mark.parametrize("run", UNITS)
def test_a_unit_that_is_wrong_before_the_reduction_is_named_by_the_canary(
    launched: Launched, run: str
) -> None:
    verdict = launched.verdicts[run]
    (incident,) = verdict["incidents"]
    assert verdict["label"] == "silent_drift"
    assert incident["first"]["ranks"] == [STRUCK]
    assert incident["first"]["metric"] == "canary_checksum"
    assert incident["first"]["interval"] == [CANARY, 2 * CANARY]
    # all replicas have taken the same wrong steps since
    state = {launched.values[run][2 * CANARY, rank]["param_checksum"] for rank in range(RANKS)}
    assert len(state) == 1


def test_runs_without_a_fault_are_healthy(launched: Launched) -> None:
    golden = {one.golden for one in FAULTS}
    assert {launched.verdicts[run]["label"] for run in golden} == {"healthy"}
    assert {launched.verdicts[run]["judged_to_iteration"] for run in golden} <= {ITERATIONS - 1, LEARNED + 2}


def test_shards_are_compared_where_they_are_replicas_alone(launched: Launched) -> None:
    sharded = launched.values["fsdp-fp32-golden"]
    assert len({sharded[STRIKE, rank]["param_checksum"] for rank in range(RANKS)}) == RANKS
    hybrid = launched.values["hsdp-fp32-golden"]
    assert hybrid[STRIKE, 0]["param_checksum"] == hybrid[STRIKE, 2]["param_checksum"]
    assert hybrid[STRIKE, 0]["param_checksum"] != hybrid[STRIKE, 1]["param_checksum"]
    blind = " ".join(launched.verdicts["fsdp-fp32-golden"]["coverage"]["blind_to"])
    assert "under zero3 no rank holds a copy" in blind


FOUND_LAYOUTS = {
    "ddp": ([["dp", 4]], "none"),
    "compiled_ddp": ([["dp", 4]], "none"),
    "ddp_over_neighbours": ([["group", 2], ["dp", 2]], "none"),
    "zero1": ([["dp", 4]], "zero1"),
    "fsdp": ([["dp", 4]], "zero3"),
    "hsdp": ([["dp_replicate", 2], ["dp_shard", 2]], "hsdp"),
    "fsdp1": ([["dp", 4]], "zero3"),
    "hsdp1": ([["dp_replicate", 2], ["dp_shard", 2]], "hsdp"),
    "tp_and_fsdp": ([["dp", 2], ["tp", 2]], "zero3"),
    "tp": ([["dp", 2], ["tp", 2]], "none"),
    "given": ([["pp", 2], ["dp", 2]], "none"),
}


@pytest.mark.parametrize("name", FOUND_LAYOUTS)
def test_every_rank_finds_the_layout_of_a_wrapped_model(launched: Launched, name: str) -> None:
    mesh, sharding = FOUND_LAYOUTS[name]
    for rank in range(RANKS):
        found = json.loads((launched.folder / f"layouts-rank{rank}.json").read_text())[name]
        assert (found["mesh"], found["sharding"]) == (mesh, sharding)


def test_what_tensor_parallel_ranks_hold_whole_has_a_scope_of_its_own(launched: Launched) -> None:
    found = json.loads((launched.folder / "layouts-rank0.json").read_text())["tp"]
    replicated = {"1.weight", "1.bias", "2.bias"}
    assert {name for name, scope in found["scopes"].items() if scope == "tp_replicated"} == replicated
