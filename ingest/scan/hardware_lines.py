"""Lines of kernels, drivers and runtimes that tell of hardware: what kind, which device, on which host.

The wording is that of the NVIDIA, AMD and Ascend drivers, of the Linux kernel (EDAC, machine checks, AER) and
of what the runtimes print into a training log. What counts for how much is decided where it is judged
(`detectors/device_record.py`); here a line is only read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from .prefixes import Part, printer_of, read_prefix
from .times import time_in

MAX_TEXT_BYTES = 240
"""Of a line kept to show it: the rest of an Xid is registers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareLine:
    """One such line. ``kind`` is that of a ``hardware`` event, ``code`` its number (an Xid).

    ``device`` names an accelerator; memory modules and processors, which belong to a host, are ``part``.
    """

    kind: str
    text: str
    code: str | None = None
    device: str | None = None
    part: str | None = None
    host: str | None = None
    rank: int | None = None
    time: float | None = None

    def fields(self) -> dict[str, object]:
        """What the event carries beside rank, iteration and time."""
        known: dict[str, object] = {
            "kind": self.kind,
            "text": self.text,
            "code": self.code,
            "device": self.device,
            "part": self.part,
            "host": self.host,
        }
        if self.kind == "diag":
            known |= {"result": "fail", "source": "the trainer's check", "moment": "during"}
        return {name: value for name, value in known.items() if value is not None}


@dataclass(frozen=True, slots=True)
class _Form:
    """A line is of this form where ``clue`` stands in it and ``words`` are found."""

    kind: str
    clue: bytes
    words: re.Pattern[bytes]
    code: str | None = None


def _form(kind: str, clue: str, words: str, code: str | None = None) -> _Form:
    return _Form(kind, clue.encode(), re.compile(words.encode()), code)


_APEI = r"\[Hardware Error\]: "
_PCI = r"(?:PCI:)?(?P<device>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-9A-Fa-f])?)"
_FORMS = (
    _form("xid", "Xid", rf"\bNVRM:? Xid \({_PCI}\): (?P<code>\d{{1,5}})\b"),
    _form("nvswitch", "SXid", rf"\bSXid \({_PCI}\): (?P<code>\d{{1,6}})\b"),
    _form("xid", "fallen off the bus", rf"GPU (?:at )?{_PCI}: GPU has fallen off the bus", "79"),
    _form("xid", "Xid", r"\bXid(?: error)?[ :=]{1,3}(?P<code>\d{1,3})\b"),
    _form("ecc_uncorrectable", "ECC", r"[Uu]ncorrect(?:able|ed) ECC error"),
    _form("ecc_uncorrectable", "UE", r"\bEDAC (?:\w+ )?(?P<part>MC\d+): \d+ UE\b"),
    _form("ecc_correctable", "CE", r"\bEDAC (?:\w+ )?(?P<part>MC\d+): \d+ CE\b"),
    _form("ecc_uncorrectable", "amdgpu", rf"amdgpu {_PCI}: .{{0,120}}?\d+ uncorrectable hardware errors"),
    _form("ecc_correctable", "amdgpu", rf"amdgpu {_PCI}: .{{0,120}}?\d+ correctable hardware errors"),
    _form("gpu_hang", "GPU Hang", r"HW Exception by GPU node-(?P<part>\d+) .{0,80}reason ?:GPU Hang"),
    _form("ecc_uncorrectable", "HBM", r"\bHBM\b.{0,60}?\b(?:[Mm]ulti|[Dd]ouble)[ -]?[Bb]it\b.{0,20}?\bECC\b"),
    _form("nvlink", "NVLink", r"[Uu]ncorrectable NVLink error"),
    _form("pcie", "PCIe Bus Error", rf"{_PCI}.{{0,40}}?PCIe Bus Error: severity=Uncorrect"),
    _form("pcie", "AER: ", rf"AER: Uncorrect(?:able|ed) .{{0,40}}?error (?:message )?received: {_PCI}"),
    _form("mce", "Machine Check", r"Machine Check(?: Exception)?: (?P<code>[0-9a-fA-F]{1,16})\b"),
    _form("mce", "[Hardware Error]", _APEI + r"(?:event severity: (?:fatal|recoverable)|Uncorrected)"),
    _form("ecc_correctable", "[Hardware Error]", _APEI + r"(?:event severity: corrected|Corrected)"),
    _form("mce_logged", "[Hardware Error]", _APEI + r"Machine check events logged"),
    _form("thermal", "throttled", r"(?P<part>CPU\d+): (?:Core|Package) temperature (?:is )?above threshold"),
    _form("thermal", "Thermal", r"HW Thermal Slowdown *: Active"),
    _form("cuda", "CUDA", r"CUDA error: an (?P<code>illegal memory access) was encountered"),
    _form("cuda", "CUDA", r"CUDA error: (?P<code>misaligned address|unspecified launch failure)"),
    _form("cuda", "CUDA", r"CUDA error: (?P<code>illegal instruction|hardware stack error) "),
    _form("cuda", "CUDA", r"CUDA error: (?P<code>invalid program counter)"),
    _form("cuda", "CUDA", r"CUDA error: (?P<code>device-side assert) triggered"),
    _form("out_of_memory", "out of memory", r"\b(?:CUDA|HIP|NPU|XPU)(?: error:)? out of memory\b"),
    _form("out_of_memory", "Out of memory", r"\bOut of memory: Killed process \d+"),
    _form("collective", "Watchdog", r"collective operation timeout: .{0,20}\bSeqNum=(?P<code>\d+)"),
    _form("collective", "NCCL WARN", r"NCCL WARN (?!.{0,40}(?:deprecated|is ignored|not supported))"),
    _form("collective", "NCCL", r"\bNCCL (?:[Ee]rror|failure)\b.{0,80}\b(unhandled|remote|internal|timeout)"),
    _form("diag", "CheckSum detects", r"CheckSum detects MatMul error on rank (?P<rank>\d+)"),
    _form("diag", "checksum is abnormal", r"result of Matmul checksum is abnormal"),
    _form("feature_value", "strikes out on rank", r"value detection strikes out on rank (?P<rank>\d+)"),
    _form("feature_value", "feature detection", r"feature detection detects abnormal results"),
    _form("feature_value", "feature value strike", r"Detect feature value strike, count: (?P<code>\d+)"),
    _form("feature_value", "Silent detect strike", r"Silent detect strike detected"),
    _form("feature_value", "accuracy sensitivity", r"accuracy sensitivity feature abnormal"),
    _form("feature_value", "SilentCheckV", r"(?:Warning|WARNING|Error|ERROR)\b.{0,40}?SilentCheckV\d"),
    _form("diag", "SDC", r"\bSilentCheck detects SDC error|\bSDC (?:error |failure )?(?:was )?detected\b"),
    _form("diag", "ata corruption", r"\b(?<![Nn]o )[Ss]ilent data corruption (?:was )?(?:detected|found)\b"),
    _form("diag", "health check", r"\b(?:GPU|NVL|NVLink|NPU|device) health check (?:has )?failed\b"),
)  # fmt: skip
HARDWARE_CLUES = tuple(dict.fromkeys(form.clue for form in _FORMS))
"""A line that holds none of these tells of no hardware."""

_HOST_BEFORE_KERNEL = re.compile(rb"(?:^|\s)([A-Za-z][\w.-]{0,120}) kernel:")


def read_hardware_line(line: bytes) -> HardwareLine | None:
    """What ``line`` tells of hardware; None where it tells nothing.

    >>> told = read_hardware_line(b"May 29 01:37:38 node-3 kernel: NVRM: Xid (PCI:0000:90:1c): 64, ...")
    >>> told.kind, told.code, told.device, told.host
    ('xid', '64', '0000:90:1c', 'node-3')
    """
    for form in _FORMS:
        if form.clue in line and (found := form.words.search(line)) is not None:
            return _read(form, found, line)
    return None


def _read(form: _Form, found: re.Match[bytes], line: bytes) -> HardwareLine:
    groups = {name: text.decode("ascii", "replace") for name, text in found.groupdict().items() if text}
    text = line[found.start() : found.start() + MAX_TEXT_BYTES].decode("utf-8", "replace").strip()
    told = HardwareLine(
        kind=form.kind,
        text=text,
        code=groups.get("code", form.code),
        device=groups.get("device"),
        part=groups.get("part"),
        rank=int(groups["rank"]) if "rank" in groups else None,
    )
    return _with_prefix(told, line)


def _with_prefix(told: HardwareLine, line: bytes) -> HardwareLine:
    prefix = read_prefix(line)

    def text_of(what: Part) -> str | None:
        field = prefix.get(what)
        return None if field is None else field.of(line)

    named = _HOST_BEFORE_KERNEL.search(line)
    printer = printer_of(prefix, line)
    rank = None if printer is None else printer.of(line)
    return replace(
        told,
        host=named[1].decode("utf-8", "replace") if named else text_of(Part.HOST),
        rank=told.rank if told.rank is not None or rank is None else int(rank),
        time=time_in(line, prefix),
    )
