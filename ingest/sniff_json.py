"""Whether text is one JSON document, rather than lines of objects or a log that begins with a bracket."""

from __future__ import annotations

import re

_OPENS = re.compile(rb"\s*(\{\s*(\"|\}|$)|\[\s*[\[{\"\d\-NI\]]|\[\s*$)")
_CUT_CHARACTER = 4
"""Bytes that a character cut at the end of the head may have left."""


def is_document(head: bytes) -> bool:
    """Whether text that begins with ``head`` is one JSON value with records in it.

    It must be JSON to its end, or to where it was cut: many logs begin with ``[rank0]`` or with the
    configuration of the run.

    >>> is_document(b'{"log_history": [{"loss": 2.5}, {"lo'), is_document(b'{"loss": 2.5}\\n{"loss": 2.4}\\n')
    (True, False)
    """
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if _OPENS.match(text) is None:
        return False
    from pydantic_core import from_json  # only what may be JSON pays for it

    try:
        value = from_json(text)
    except ValueError as error:
        if "EOF" not in str(error) and not _is_cut_character(text, str(error)):
            return False
        cut = text[: max(text.rfind(b","), text.rfind(b"["), text.rfind(b"{"))]
        try:
            value = from_json(cut, allow_partial=True)
        except ValueError:
            return False
    if isinstance(value, dict):
        return any(isinstance(each, dict | list) for each in value.values())
    return isinstance(value, list) and any(isinstance(each, dict | list | int | float) for each in value)


def _is_cut_character(text: bytes, reason: str) -> bool:
    """Whether only the last character, which was cut, keeps text from being JSON up to its end."""
    if "unicode" not in reason:
        return False
    try:
        text[:-_CUT_CHARACTER].decode()
    except UnicodeDecodeError as error:
        return error.end >= len(text) - 2 * _CUT_CHARACTER
    return True
