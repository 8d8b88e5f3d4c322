"""Fingerprints that ranks print of what should be the same on all of them: parameters, gradients, hashes.

They are compared for equality alone, so the digits are kept as text: a checksum of them.
"""

from __future__ import annotations

import hashlib
import re

from firstfault.telemetry import MAX_RANK, Checksum

from .sentences import Finding

_RANK = re.compile(rb"\b[Rr]ank[ :=]{0,2}(\d{1,7})\b")
_PLACE = re.compile(rb"\b(model|layer|stage|block|chunk|bucket)[ :=_.#]{0,2}(\d{1,5})\b")
_NUMBER = rb"[-+]?(?:\d[\d.]{0,40}(?:[eE][-+]?\d{1,4})?|nan|inf)"
_PAIR = re.compile(
    rb"\b(weights?|bias|params?|parameters?|grads?|gradients?|checksum|hash|sha1|md5)"
    rb"(?:[ _](?:mean|max|min|sum|norm|std|checksum|hash))?[ :=]{1,3}(?=[-+0-9a-fni])("
    + _NUMBER
    + rb"|[0-9a-f]{8,128})(?![\w.])"
)
_NO_FINGERPRINT = re.compile(rb"\b(?:loss|lr|iter|iteration|step|epoch)\b")
_HEADING = re.compile(rb"\b(?:\w{2} )?[Rr]ank[ :=]{0,2}(?P<rank>\d{1,7})(?: has value)?:\s*$")
_TENSOR = re.compile(rb"^\s*tensor\((\[[-+\d.,eE naif\[\]]{1,4000})")
_BITS = 16


def read_fingerprint(line: bytes) -> Finding | None:
    """The fingerprints of one rank on one line.

    >>> told = read_fingerprint(b"Rank 1, model 0, layer 2, weight 3.5e-05, bias 7.2e-05")
    >>> told.rank, sorted(told.metrics)
    (1, ['param_checksum/model0.layer2.bias', 'param_checksum/model0.layer2.weight'])
    """
    ranked = _RANK.search(line)
    if ranked is None or int(ranked[1]) > MAX_RANK or _NO_FINGERPRINT.search(line):
        return None
    place = ".".join((name + number).decode() for name, number in _PLACE.findall(line))
    found = {_name(what, place): checksum_of(text) for what, text in _PAIR.findall(line)}
    if not found:
        return None
    return Finding(sentence="fingerprint", metrics=found, rank=int(ranked[1]), hint=0)


def read_heading(line: bytes) -> Finding | None:
    """``TP rank 2:`` in front of what that rank holds."""
    found = _HEADING.search(line)
    if found is None or int(found["rank"]) > MAX_RANK:
        return None
    return Finding(sentence="rank_heading", rank=int(found["rank"]), is_heading=True)


def read_tensor(line: bytes) -> Finding | None:
    """A printed tensor, of the rank in the heading above it."""
    found = _TENSOR.match(line)
    if found is None or found[1].count(b",") < 2:
        return None
    metrics = {"param_checksum/printed": checksum_of(found[1])}
    return Finding(sentence="printed_tensor", metrics=metrics, hint=0, needs_heading=True)


def checksum_of(text: bytes) -> Checksum:
    """Printed digits as something that is compared for equality alone."""
    return Checksum(int.from_bytes(hashlib.blake2b(text.strip(), digest_size=_BITS).digest(), "big"))


def _name(what: bytes, place: str) -> str:
    base = "grad_checksum" if what.startswith(b"grad") else "param_checksum"
    return f"{base}/{place}.{what.decode()}" if place else f"{base}/{what.decode()}"
