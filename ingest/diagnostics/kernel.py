"""Kernel logs (dmesg, journalctl, syslog): the lines that tell of hardware."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ingest.scan.hardware_lines import HARDWARE_CLUES, HardwareLine, read_hardware_line

from .report import MAX_FINDINGS, DiagnosticReport, Finding, Place

_HARDWARE_KINDS = frozenset(
    (
        "xid",
        "nvswitch",
        "ecc_uncorrectable",
        "ecc_correctable",
        "mce",
        "mce_logged",
        "thermal",
        "pcie",
        "gpu_hang",
    )
)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DAY_TIME = re.compile(rf"\b({'|'.join(_MONTHS)}) {{1,2}}(\d{{1,2}}) (\d\d):(\d\d):(\d\d)(?! \d{{4}})")
_MAX_LINE_BYTES = 4096


def read_kernel(chunks: Iterable[bytes], path: str, host: str | None) -> DiagnosticReport:
    """The findings in the lines of a kernel log; the same again and again is one with a count."""
    found: dict[tuple[str, str | None, Place], Finding] = {}
    for line in _lines(chunks):
        if not any(clue in line for clue in HARDWARE_CLUES):
            continue
        told = read_hardware_line(line)
        if told is None or told.kind not in _HARDWARE_KINDS:
            continue
        finding = _finding(told, line, host)
        key = (finding.kind, finding.code, finding.place)
        if key in found:
            found[key] = replace(found[key], count=found[key].count + 1)
        elif len(found) < MAX_FINDINGS:
            found[key] = finding
    remarks = () if found else ("none of its lines tells of hardware",)
    return DiagnosticReport(path=path, format="kernel log", findings=tuple(found.values()), remarks=remarks)


def _finding(told: HardwareLine, line: bytes, host: str | None) -> Finding:
    place = Place(device=told.device, host=told.host or host)
    stamp = _DAY_TIME.search(line.decode("ascii", "replace"))
    day_time = None
    if stamp is not None and told.time is None:
        month, day, hour, minute, second = stamp.groups()
        day_time = (_MONTHS.index(month) + 1, int(day), int(hour) * 3600.0 + int(minute) * 60 + int(second))
    return Finding(
        kind=told.kind, text=told.text, place=place, code=told.code, time=told.time, day_time=day_time
    )


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The lines, each cut to a length that any message has room in."""
    carry = b""
    for chunk in chunks:
        *whole, carry = (carry + chunk).split(b"\n")
        carry = carry[:_MAX_LINE_BYTES]
        for line in whole:
            yield line[:_MAX_LINE_BYTES]
    if carry:
        yield carry
