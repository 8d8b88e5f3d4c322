"""Whether a file is a report about hardware, and what it says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ingest.encodings import wide_encoding
from ingest.errors import UnreadableInput
from ingest.file_bytes import FileBytes
from ingest.sniff import Packing, packing_of

from .report import DiagnosticReport

MAX_REPORT_BYTES = 64 << 20
"""Bytes of a report that is read as a whole: 64 MiB; a diagnosis of a host is some hundred kilobytes."""
_HEAD_BYTES = 1 << 16
_MAX_LINE_BYTES = 4096
_OF_KERNEL = re.compile(rb"(?:^|\s)kernel: |^(?:<\d{1,3}>)?\[ *\d{1,9}\.\d{6}\] |^kern +:|NVRM: ")
_KERNEL_SHARE = 0.5
"""Share of the first lines that a kernel wrote, for the file to be one of a kernel."""
_CLUES = re.compile(
    rb"DCGM (?:GPU )?Diagnostic|<nvidia_smi_log>|ecc\.errors|retired_pages|remapped_rows"
    rb"|[Aa]scend[-_ ]?[Dd][Mm][Ii]|(?:GENERAL|IMPORTANT|EMERGENCY)_WARN"
)
_HOST_IN_NAME = re.compile(
    r"(?:^|[-_.])((?:node|host|gpu|worker|compute|server|cn|gn|nid|ip)[-_]?\d[\w-]*?)(?=$|[._])",
    re.IGNORECASE,
)


def diagnostics_of(path: Path, *, is_named: bool = False) -> DiagnosticReport | None:
    """The report in the file ``path``; None if it is none.

    ``is_named``: a person says that it is one, so that a kernel log without a finding is one as well.

    Raises:
        UnreadableInput: it cannot be opened, or is damaged.
    """
    if not is_named and not _may_be_one(path):
        return None
    remarks: list[str] = []
    chunks = FileBytes([path], str(path), remarks.append).chunks()
    head = b""
    for chunk in chunks:
        head += chunk
        if len(head) >= _HEAD_BYTES:
            break
    host = host_of(path.name)
    is_kernel = is_kernel_log(head[:_HEAD_BYTES])
    if not is_kernel and (is_named or _CLUES.search(head[:_HEAD_BYTES])):
        data = head
        for chunk in chunks:
            data += chunk
            if len(data) > MAX_REPORT_BYTES:
                return None
        return _of_text(data.decode("utf-8", "replace"), str(path), host)
    if is_kernel:
        from .kernel import read_kernel  # dozens of patterns, which few files need

        report = read_kernel(_chain(head, chunks), str(path), host)
        return report if report.findings or is_named else None
    return None


def _may_be_one(path: Path) -> bool:
    """A look at the first bytes, which is all that most files of a folder need."""
    try:
        with path.open("rb") as stream:
            head = stream.read(_HEAD_BYTES)
    except OSError as error:
        raise UnreadableInput(f"{path}: {error.strerror}") from error
    is_plain = packing_of(head) is Packing.PLAIN and wide_encoding(head) is None
    return not is_plain or _CLUES.search(head) is not None or is_kernel_log(head)


def is_kernel_log(head: bytes) -> bool:
    """Whether most lines at the beginning of a file were written by a kernel."""
    lines = [line for line in head.split(b"\n") if line.strip()]
    found = sum(_OF_KERNEL.search(line[:_MAX_LINE_BYTES]) is not None for line in lines)
    return bool(lines) and found >= _KERNEL_SHARE * len(lines)


def named_report(path: Path) -> DiagnosticReport:
    """The report in the file ``path``, which must be one.

    Raises:
        UnreadableInput: it is none, or cannot be read.
    """
    if path.is_dir() or not path.exists():
        raise UnreadableInput(f"--diagnostics {path}: must be a file")
    report = diagnostics_of(path, is_named=True)
    if report is None:
        kinds = "the JSON of dcgmi diag, results of ascend-dmi, nvidia-smi -q -x or a kernel log"
        raise UnreadableInput(f"--diagnostics {path}: must be {kinds}, but it is none of them")
    return report


def host_of(name: str) -> str | None:
    """The host that the name of a file tells: reports of devices seldom say where they ran.

    >>> host_of("dcgmi-node07.json"), host_of("dcgmi.json")
    ('node07', None)
    """
    found = _HOST_IN_NAME.search(name)
    return found.group(1) if found else None


def _of_text(text: str, path: str, host: str | None) -> DiagnosticReport | None:
    # an XML parser among them, which a log of training need not wait for
    from .ascend import read_ascend
    from .dcgm import read_dcgm
    from .nvidia_smi import read_nvidia_smi

    for read in (read_dcgm, read_nvidia_smi, read_ascend):
        report = read(text, path, host)
        if report is not None:
            return report
    return None


def _chain(head: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield head
    yield from rest
