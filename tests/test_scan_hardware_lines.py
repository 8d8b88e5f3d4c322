"""Lines of drivers, kernels and runtimes that tell of hardware are read with their device and host."""

from __future__ import annotations

import pytest

from ingest.scan.hardware_lines import HARDWARE_CLUES, read_hardware_line

_LINES: dict[str, dict[str, object]] = {
    "[Fri Aug 30 11:43:09 2024] NVRM: Xid (PCI:0000:cb:00): 13, pid='<unknown>', Graphics SM": {
        "kind": "xid",
        "code": "13",
        "device": "0000:cb:00",
    },
    "kernel: NVRM: Xid (PCI:0000:9b:00): 94, pid=1234, name=python3, Contained ECC error": {
        "kind": "xid",
        "code": "94",
    },
    "Okt 06 17:59:27 balrog kernel: NVRM: GPU 0000:01:00.0: GPU has fallen off the bus.": {
        "kind": "xid",
        "code": "79",
        "device": "0000:01:00.0",
        "host": "balrog",
    },
    "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 24007, Non-fatal, Link 44": {
        "kind": "nvswitch",
        "code": "24007",
    },
    "[rank5]: RuntimeError: CUDA error: uncorrectable ECC error encountered": {
        "kind": "ecc_uncorrectable",
        "rank": 5,
    },
    "[11189.970968] EDAC MC3: 1 UE memory read error on CPU_SrcID#1_MC#1_Chan#2_DIMM#0": {
        "kind": "ecc_uncorrectable",
        "part": "MC3",
    },
    "[11189.970968] EDAC MC0: 7 CE memory read error on CPU_SrcID#0": {"kind": "ecc_correctable"},
    "{1}[Hardware Error]: event severity: recoverable": {"kind": "mce"},
    "mce: [Hardware Error]: CPU 12: Machine Check Exception: 5 Bank 7: be00000000800400": {"kind": "mce"},
    "mce: [Hardware Error]: Machine check events logged": {"kind": "mce_logged"},
    "[Hardware Error]: Corrected error, no action required.": {"kind": "ecc_correctable"},
    "amdgpu 0000:83:00.0: amdgpu: 3 uncorrectable hardware errors detected in umc block": {
        "kind": "ecc_uncorrectable",
        "device": "0000:83:00.0",
    },
    "[rank3]:[E1130 14:43:34.12 ProcessGroupNCCL.cpp:616] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=17, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600081 milliseconds": {
        "kind": "collective",
        "code": "17",
        "rank": 3,
    },
    "gpu-12:2345:2399 [3] NCCL WARN NET/IB : Got completion from peer with error 12": {
        "kind": "collective",
        "host": "gpu-12",
    },
    "[rank1]: RuntimeError: CUDA error: an illegal memory access was encountered": {
        "kind": "cuda",
        "code": "illegal memory access",
        "rank": 1,
    },
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.": {"kind": "out_of_memory"},
    "[WARNING] CheckSum detects MatMul error on rank 6": {"kind": "diag", "rank": 6},
    "[WARNING] Feature value detection strikes out on rank 6, strikes_num: 3": {
        "kind": "feature_value",
        "rank": 6,
    },
    "[Warning]: feature detection detects abnormal results!": {"kind": "feature_value"},
    "ERROR: silent data corruption detected on core 3": {"kind": "diag"},
}


@pytest.mark.parametrize("line", _LINES)
def test_a_line_about_hardware_says_kind_device_and_host(line: str) -> None:
    told = read_hardware_line(line.encode())
    assert told is not None
    assert {name: getattr(told, name) for name in _LINES[line]} == _LINES[line]
    assert any(clue in line.encode() for clue in HARDWARE_CLUES)


@pytest.mark.parametrize(
    "line",
    [
        "gpu-12:2345:2399 [3] NCCL INFO comm 0x1 rank 3",
        "no silent data corruption found",
        "ECC is enabled on all devices",
        "loss: 2.5 | max_split_size_mb to avoid out of memory",
        "RuntimeError: expected scalar type Half",
        "EDAC MC0: Giving out device to module skx_edac",
    ],
)
def test_a_line_that_only_names_hardware_tells_nothing(line: str) -> None:
    assert read_hardware_line(line.encode()) is None


def test_a_device_keeps_the_time_and_host_of_its_line() -> None:
    told = read_hardware_line(
        b"2026-06-28T16:08:16+00:00 node-3 kernel: [6.6] NVRM: Xid (PCI:0000:10:1c): 63, x"
    )
    assert told is not None
    assert told.time == 1782662896.0
    assert told.fields() == {
        "kind": "xid",
        "code": "63",
        "device": "0000:10:1c",
        "host": "node-3",
        "text": "NVRM: Xid (PCI:0000:10:1c): 63, x",
    }
