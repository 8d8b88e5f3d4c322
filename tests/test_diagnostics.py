"""Reports about hardware: what is read of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.diagnostics.recognise import diagnostics_of, named_report
from ingest.diagnostics.report import DiagnosticReport, Place
from ingest.errors import UnreadableInput

from .diagnostic_builders import MEMORY_FAILS, dcgm


def report_of(path: Path, text: str | bytes) -> DiagnosticReport:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    report = diagnostics_of(path)
    assert report is not None
    return report


@pytest.mark.parametrize("layout", [3, 4])
def test_the_failing_device_of_a_diagnosis_is_found_and_the_others_passed(
    tmp_path: Path, layout: int
) -> None:
    report = report_of(tmp_path / "dcgmi-node07.json", dcgm({0: "Pass", 1: "Pass", 3: "Fail"}, layout=layout))

    (finding,) = report.findings
    assert finding.is_failure and finding.place == Place(device="3", host="node07")
    assert finding.text == f"memory: fail: {MEMORY_FAILS}"
    assert [(place.device, tests) for place, tests in report.passed] == [("0", "memory"), ("1", "memory")]


def test_a_diagnosis_of_software_alone_passes_no_device(tmp_path: Path) -> None:
    report = report_of(tmp_path / "d.json", dcgm({0: "Skip"}))

    assert not report.passed and not report.findings
    assert "no test of the hardware was run" in report.remarks[0]


ASCEND_JSON = """{"devices": [
  {"device_id": 0, "items": [{"item": "aicore", "result": "PASS"}, {"item": "hbm", "result": "PASS"}]},
  {"device_id": 5, "items": [{"item": "aicore", "result": "EMERGENCY_WARN", "message": "core 3"}]}]}"""
ASCEND_TABLE = """ascend-dmi diagnosis
| Item   | Device | Result         |
| aicore | 0      | PASS           |
| aicore | 5      | EMERGENCY_WARN |
"""


@pytest.mark.parametrize("text", [ASCEND_JSON, ASCEND_TABLE])
def test_results_of_ascend_are_read_in_both_forms(tmp_path: Path, text: str) -> None:
    report = report_of(tmp_path / "dmi.txt", text)

    (finding,) = report.findings
    assert (finding.place.device, finding.is_failure, finding.code) == ("5", True, "EMERGENCY_WARN")
    assert [place.device for place, _ in report.passed] == ["0"]


KERNEL = """\
Nov 30 14:43:34 node-03 kernel: [ 680.125000] NVRM: Xid (PCI:0000:10:1c): 79, pid=1850, GPU has fallen off
Nov 30 14:43:35 node-03 kernel: [ 681.125000] NVRM: Xid (PCI:0000:10:1c): 79, pid=1850, GPU has fallen off
Nov 30 14:43:36 node-03 kernel: [ 682.000000] usb 1-1: new high-speed USB device
"""


def test_the_lines_of_a_kernel_are_findings_with_host_and_time(tmp_path: Path) -> None:
    (finding,) = report_of(tmp_path / "messages", KERNEL).findings

    assert (finding.kind, finding.code, finding.count) == ("xid", "79", 2)
    assert finding.place == Place(device="0000:10:1c", host="node-03")
    assert finding.day_time == (11, 30, 14 * 3600 + 43 * 60 + 34)


SMI = """<?xml version="1.0" ?><!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd"><nvidia_smi_log>
<gpu id="00000000:18:00.0"><uuid>GPU-aa</uuid><serial>165</serial>
<ecc_errors><volatile><dram_uncorrectable>0</dram_uncorrectable></volatile></ecc_errors></gpu>
<gpu id="00000000:3E:00.0"><uuid>GPU-bb</uuid>
<ecc_errors><volatile><dram_uncorrectable>2</dram_uncorrectable></volatile></ecc_errors>
<remapped_rows><remapped_row_pending>No</remapped_row_pending><remapped_row_failure>Yes</remapped_row_failure>
</remapped_rows></gpu></nvidia_smi_log>"""
SMI_TABLE = """index, uuid, pci.bus_id, ecc.errors.uncorrected.volatile.total
0, GPU-aa, 00000000:18:00.0, 0
1, GPU-bb, 00000000:3E:00.0, 2
"""


@pytest.mark.parametrize(("text", "findings"), [(SMI, 2), (SMI_TABLE, 1)])
def test_counters_of_memory_errors_are_findings(tmp_path: Path, text: str, findings: int) -> None:
    report = report_of(tmp_path / "smi", text)

    assert len(report.findings) == findings
    assert {finding.place.device for finding in report.findings} == {"1"}
    assert {"GPU-bb", "00000000:3E:00.0"} <= set(report.findings[0].place.names)


def test_entities_in_a_report_are_not_expanded(tmp_path: Path) -> None:
    path = tmp_path / "smi.xml"
    path.write_text(SMI.replace("<gpu id", '<!ENTITY a "aaaa"><gpu id', 1))

    assert diagnostics_of(path) is None


def test_a_log_of_training_is_no_report(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("".join(f"step {step} loss 1.5\n" for step in range(50)) + KERNEL)

    assert diagnostics_of(path) is None


def test_what_must_be_a_report_and_is_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("step 1 loss 2\n")

    with pytest.raises(UnreadableInput, match=r"--diagnostics .*train.log: must be"):
        named_report(path)


@given(st.sampled_from([dcgm({0: "Fail"}), ASCEND_JSON, ASCEND_TABLE, SMI, SMI_TABLE, KERNEL]), st.data())
def test_any_damage_gives_a_report_or_none(
    tmp_path_factory: pytest.TempPathFactory, text: str, data: st.DataObject
) -> None:
    raw = bytearray(text.encode())
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at : at + data.draw(st.integers(0, 8))] = data.draw(st.binary(max_size=8))
    path = tmp_path_factory.getbasetemp() / "report"
    path.write_bytes(bytes(raw))

    diagnostics_of(path)


@pytest.mark.parametrize("text", [dcgm({0: "Fail"}), ASCEND_JSON, ASCEND_TABLE, SMI])
def test_a_log_into_which_a_report_was_printed_is_a_log(tmp_path: Path, text: str) -> None:
    path = tmp_path / "slurm.out"
    path.write_text(text + "\n" + "".join(f"step: {step} loss: 1.5\n" for step in range(1000)))

    assert diagnostics_of(path) is None


def test_a_deep_report_is_read_to_a_bounded_depth(tmp_path: Path) -> None:
    path = tmp_path / "smi.xml"
    deep = "<a>" * 20_000 + "1" + "</a>" * 20_000
    path.write_text(f"<nvidia_smi_log><gpu id='0'><ecc_errors>{deep}</ecc_errors></gpu></nvidia_smi_log>")

    report = diagnostics_of(path)

    assert report is not None and not report.findings
