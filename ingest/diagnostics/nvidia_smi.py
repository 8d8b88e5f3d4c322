"""What ``nvidia-smi`` counts: the XML of ``-q -x`` and the table of ``--query-gpu=… --format=csv``."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping
from xml.etree import ElementTree

from .report import MAX_BESIDE, MAX_FINDINGS, DiagnosticReport, Finding, Place

_PCI = re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-9A-Fa-f])?")
_XML_END = "</nvidia_smi_log>"
_MAX_DEPTH = 8
"""Elements inside each other: the counters lie at four."""
_VOLATILE = "since the driver was loaded"
_AGGREGATE = "over the life of the device"


def read_nvidia_smi(text: str, path: str, host: str | None) -> DiagnosticReport | None:
    """The report in ``text``; None if it is none."""
    start, end = text.find("<nvidia_smi_log>"), text.rfind(_XML_END) + len(_XML_END)
    if 0 <= start < end and len(text) - (end - start) <= MAX_BESIDE:
        return _of_xml(text[start:end], path, host)
    first = text.lstrip().partition("\n")[0]
    if "," in first and ("ecc." in first or "retired_pages" in first or "remapped_rows" in first):
        return _of_table(text.lstrip(), path, host)
    return None


def _of_xml(text: str, path: str, host: str | None) -> DiagnosticReport | None:
    # No entity is of use here, and entities are how a small file becomes a large one.
    if "<!ENTITY" in text:
        return None
    try:
        root = ElementTree.fromstring(text)  # no entities: checked above
    except ElementTree.ParseError:
        return None
    findings: list[Finding] = []
    places: list[Place] = []
    for index, gpu in enumerate(root.iter("gpu")):
        names = (gpu.get("id"), gpu.findtext("uuid"), gpu.findtext("serial"))
        place = _place(str(index), names, host)
        values = {"/".join(trail): (leaf.text or "").strip() for trail, leaf in _leaves(gpu, ())}
        places.append(place)
        findings += _findings(values, place)
    return _report(findings, places, path)


def _leaves(
    node: ElementTree.Element, above: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], ElementTree.Element]]:
    for child in node:
        trail = (*above, child.tag)
        if len(child) and len(trail) < _MAX_DEPTH:
            yield from _leaves(child, trail)
        else:
            yield trail, child


def _of_table(text: str, path: str, host: str | None) -> DiagnosticReport | None:
    try:
        rows = list(csv.DictReader(io.StringIO(text), skipinitialspace=True))
    except csv.Error:
        return None
    findings: list[Finding] = []
    places: list[Place] = []
    for at, row in enumerate(rows):
        values = {str(key): str(value or "") for key, value in row.items() if key is not None}
        names = tuple(values.get(key) for key in ("pci.bus_id", "gpu_bus_id", "uuid", "gpu_uuid", "serial"))
        places.append(_place(values.get("index", str(at)), names, host))
        findings += _findings(values, places[-1])
    return _report(findings, places, path)


def _place(index: str, names: tuple[str | None, ...], host: str | None) -> Place:
    known = tuple(name for name in names if name and name not in ("N/A", "[N/A]", "0"))
    return Place(device=index, host=host, names=known)


def _findings(values: Mapping[str, str], place: Place) -> Iterator[Finding]:
    """What is not zero among the counters of one device."""
    for name, value in values.items():
        number = re.match(r"\d+", value)
        count = int(number.group(0)) if number else 0
        lowered = name.lower()
        if value.lower() == "yes" and "fail" in lowered and "remap" in lowered:
            yield Finding(kind="diag", text="row remapping failed", place=place, is_failure=True)
        elif value.lower() == "yes" and "pending" in lowered:
            yield Finding(kind="ecc_correctable", text="memory waits to be retired", place=place)
        elif count and re.search(r"uncorr|double_bit|double bit", lowered) and "remap" not in lowered:
            is_now = "volatile" in lowered
            since = _VOLATILE if is_now else _AGGREGATE
            kind = "ecc_uncorrectable" if is_now else "ecc_uncorrectable_aggregate"
            yield Finding(kind=kind, text=f"{count} uncorrectable memory errors {since}", place=place)


def _report(findings: list[Finding], places: list[Place], path: str) -> DiagnosticReport:
    own = tuple(dict.fromkeys(findings))
    return DiagnosticReport(
        path=path, format="nvidia-smi", findings=own[:MAX_FINDINGS], devices=tuple(places[:MAX_FINDINGS])
    )
