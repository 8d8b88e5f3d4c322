"""The results of ``ascend-dmi`` diagnoses, as JSON or as the table on the terminal.

What is common to its releases: a result is one of five words, and stands beside the number of its device and
the name of its test. So results are looked for by these words, wherever they stand.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from pydantic_core import from_json

from .report import MAX_BESIDE, MAX_FINDINGS, MAX_TEXT, DiagnosticReport, Finding, Place

_WARNINGS = ("GENERAL_WARN", "IMPORTANT_WARN", "EMERGENCY_WARN")
_RESULTS = ("PASS", "FAIL", *_WARNINGS)
_TESTS = r"ai_?core|hbm|hbm_?ds|ai_?flops|signal_?quality|network|bandwidth|p2p|edp|tdp|nic|driver|cann"
_HARDWARE = re.compile(r"ai_?core|hbm|ai_?flops|signal_?quality|bandwidth|p2p|edp|tdp", re.IGNORECASE)
"""Tests of the hardware; the others look at software."""
_WORD = re.compile(r"\b(PASS|FAIL|GENERAL_WARN|IMPORTANT_WARN|EMERGENCY_WARN)\b")
_TEST = re.compile(rf"(?<![A-Za-z])({_TESTS})(?![A-Za-z])", re.IGNORECASE)
_DEVICE = re.compile(
    r"(?:device|npu|card|chip)(?:[ _-]?id)?\W{0,3}(\d{1,4})|(?:^|[|\s])(\d{1,3})(?=[|\s])", re.IGNORECASE
)
_DEVICE_KEY = re.compile(r"^(?:device|npu|card|chip|logic)(?:[ _-]?id)?$", re.IGNORECASE)
_NAME_KEY = re.compile(
    r"^(?:item|name|type|test|diagnosis|check)(?:[ _-]?(?:item|name|type))?$", re.IGNORECASE
)
_TEXT_KEY = re.compile(r"message|detail|reason|suggest|advice|info|desc", re.IGNORECASE)
_MAX_DEPTH = 16
MIN_SHARE = 0.2
"""Lines with a result among all lines of a table: fewer are a log in which such a table was printed."""

Result = tuple[str | None, str, str, str]
"""(device, test, result word, text)."""


def read_ascend(text: str, path: str, host: str | None) -> DiagnosticReport | None:
    """The report in ``text``; None if it is none."""
    is_named = re.search(r"ascend[-_ ]?dmi", text, re.IGNORECASE) is not None
    is_told = is_named or any(word in text for word in _WARNINGS)
    if not is_told and (_TEST.search(text) is None or _WORD.search(text) is None):
        return None
    results = list(_of_json(text))
    if not results:
        results = list(_of_lines(text))
        filled = sum(1 for line in text.splitlines() if line.strip())
        if len(results) < MIN_SHARE * filled:
            return None
    known = [each for each in results if _TEST.search(each[1])]
    if not known:
        return None
    return _report(known, path, host)


def _report(results: list[Result], path: str, host: str | None) -> DiagnosticReport:
    findings: list[Finding] = []
    good: dict[str, list[str]] = defaultdict(list)
    bad: set[str | None] = set()
    for device, test, word, text in results:
        is_hardware = _HARDWARE.search(test) is not None
        if word == "PASS":
            if device is not None and is_hardware:
                good[device].append(test)
            continue
        bad.add(device)
        # A general warning asks for a look, no more.
        is_failure = is_hardware and word in ("FAIL", "IMPORTANT_WARN", "EMERGENCY_WARN")
        told = f"{test}: {word}" + (f": {text}" if text else "")
        place = Place(device=device, host=host)
        findings.append(
            Finding(kind="diag", text=told[:MAX_TEXT], place=place, code=word, is_failure=is_failure)
        )
    passed = tuple(
        (Place(device=device, host=host), ", ".join(dict.fromkeys(tests)))
        for device, tests in good.items()
        if device not in bad
    )
    return DiagnosticReport(
        path=path, format="ascend-dmi", findings=tuple(findings[:MAX_FINDINGS]), passed=passed
    )


def _of_json(text: str) -> Iterator[Result]:
    start = min((at for at in (text.find("{"), text.find("[")) if at >= 0), default=-1)
    end = max(text.rfind("}"), text.rfind("]")) + 1
    if start < 0 or len(text) - (end - start) > MAX_BESIDE:
        return
    try:
        node = from_json(text[start:end])
    except ValueError:
        return
    yield from _walk(node, "", None, 0)


def _walk(node: object, name: str, device: str | None, depth: int) -> Iterator[Result]:
    """Results below ``node``, with the nearest device and test name above them."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(node, list):
        for each in node:
            yield from _walk(each, name, device, depth + 1)
    elif isinstance(node, dict):
        for key, value in node.items():
            if _DEVICE_KEY.match(str(key)) and isinstance(value, int | str):
                device = str(value)
            elif _NAME_KEY.match(str(key)) and isinstance(value, str) and value not in _RESULTS:
                name = value
        text = next((v for k, v in node.items() if _TEXT_KEY.search(str(k)) and isinstance(v, str)), "")
        for key, value in node.items():
            if isinstance(value, str) and value.upper() in _RESULTS:
                own = str(key) if _TEST.search(str(key)) else name
                yield device, own[:80], value.upper(), text
            elif isinstance(value, dict | list):
                inner = str(key) if _TEST.search(str(key)) else name
                number = re.fullmatch(r"(?:device|npu|card|chip)?[ _-]?(\d{1,4})", str(key), re.IGNORECASE)
                yield from _walk(value, inner, number.group(1) if number else device, depth + 1)


def _of_lines(text: str) -> Iterator[Result]:
    """Results of a table: the device and the test of a row, or the last that were named above it."""
    device: str | None = None
    test = ""
    for line in text.splitlines():
        if (found := _TEST.search(line)) is not None:
            test = found.group(1)
        word = _WORD.search(line)
        numbered = _DEVICE.search(line)
        if numbered is not None:
            device = numbered.group(1) or numbered.group(2)
        if word is not None and test:
            yield device, test, word.group(1), ""
