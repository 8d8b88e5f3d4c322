"""The JSON of ``dcgmi diag -j``: the results of its tests, device by device.

The layout changed between releases: a result names its device as ``gpu_id``, as ``gpu_ids`` or as an entity;
warnings are text, a list of texts or of objects. The tests of the category "Deployment" look at software
and settings, but for those of retired memory.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

from pydantic_core import from_json

from .report import MAX_BESIDE, MAX_FINDINGS, MAX_TEXT, DiagnosticReport, Finding, Place

_ROOT = re.compile(r"^DCGM\b.*Diagnostic$")
_SOFTWARE = "deployment"
_OF_DEVICES = re.compile(r"page retirement|row remap|inforom", re.IGNORECASE)
"""Tests among those of the software that look at the device."""


def read_dcgm(text: str, path: str, host: str | None) -> DiagnosticReport | None:
    """The report in ``text``; None if it is none. Lines of the command around the JSON are passed over."""
    start, end = text.find("{"), text.rfind("}") + 1
    if start < 0 or "Diagnostic" not in text or len(text) - (end - start) > MAX_BESIDE:
        return None
    try:
        node = from_json(text[start:end])
    except ValueError:
        return None
    if not isinstance(node, dict):
        return None
    body = next((value for key, value in node.items() if _ROOT.match(str(key))), None)
    return _report(body, path, host) if isinstance(body, dict) else None


def _report(body: Mapping[str, object], path: str, host: str | None) -> DiagnosticReport:
    findings: list[Finding] = []
    good: dict[str, list[str]] = defaultdict(list)
    bad: set[str] = set()
    names = _names(body)
    for category, test, result in _results(body):
        is_hardware = category.lower() != _SOFTWARE or _OF_DEVICES.search(test) is not None
        status = str(result.get("status", "")).lower()
        for device in _devices(result):
            if status.startswith("pass") and category.lower() != _SOFTWARE:
                good[device].append(test)
            if status.startswith("fail"):
                bad.add(device)
            if status.startswith(("fail", "warn")):
                place = Place(device=device, host=host, names=names.get(device, ()))
                findings.append(_finding(test, result, place, is_failure=is_hardware and status[0] == "f"))
    passed = tuple(
        (Place(device=device, host=host, names=names.get(device, ())), ", ".join(dict.fromkeys(tests)))
        for device, tests in good.items()
        if device not in bad
    )
    errors = [str(body[key])[:MAX_TEXT] for key in ("runtime_error", "Runtime Error") if key in body]
    if not passed and not findings:
        errors.append("no test of the hardware was run (level 1 looks at software and settings)")
    return DiagnosticReport(
        path=path,
        format="dcgmi diag",
        findings=tuple(findings[:MAX_FINDINGS]),
        passed=passed,
        remarks=tuple(errors),
    )


def _results(body: Mapping[str, object]) -> Iterator[tuple[str, str, Mapping[str, object]]]:
    """Each result with its category and its test."""
    for category in _dicts(body.get("test_categories")):
        for test in _dicts(category.get("tests")):
            for result in _dicts(test.get("results")):
                yield str(category.get("category", "")), str(test.get("name", "test"))[:80], result


def _devices(result: Mapping[str, object]) -> list[str]:
    """The devices of a result; that of a whole host (its processors, its switches) is none."""
    if "entity_id" in result:
        group = str(result.get("entity_group", "GPU"))
        return [str(result["entity_id"])] if group.upper() == "GPU" else []
    found = result.get("gpu_id", result.get("gpu_ids"))
    if isinstance(found, list):
        return [str(each) for each in found]
    return [each.strip() for each in str(found).split(",")] if found is not None else []


def _finding(test: str, result: Mapping[str, object], place: Place, *, is_failure: bool) -> Finding:
    told = [text for key in ("warnings", "warning", "info") for text in _texts(result.get(key))]
    status = str(result.get("status", "")).lower()
    words = f"{test}: {status}" + (f": {told[0]}" if told else "")
    code = next(
        (str(each["error_id"]) for each in _dicts(result.get("warnings")) if "error_id" in each), None
    )
    return Finding(kind="diag", text=words[:MAX_TEXT], place=place, code=code, is_failure=is_failure)


def _texts(node: object) -> list[str]:
    if isinstance(node, str):
        return [node] if node.strip() else []
    if isinstance(node, list):
        return [text for each in node for text in _texts(each)]
    return _texts(node.get("warning", node.get("info"))) if isinstance(node, dict) else []


def _names(body: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
    """Serial numbers of devices by their index."""
    found: dict[str, tuple[str, ...]] = {}
    serials = next((value for key, value in body.items() if "serial" in key.lower()), None)
    if isinstance(serials, dict):
        found |= {str(device): (str(serial),) for device, serial in serials.items()}
    for group in _dicts(body.get("entity_groups")):
        for entity in _dicts(group.get("entities")):
            serial = entity.get("serial_num")
            if str(group.get("entity_group", "")).upper() == "GPU" and isinstance(serial, str) and serial:
                found[str(entity.get("entity_id"))] = (serial,)
    return found


def _dicts(node: object) -> list[Mapping[str, object]]:
    return [each for each in node if isinstance(each, dict)] if isinstance(node, list) else []
