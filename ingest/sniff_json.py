"""Whether text is JSON, and then whether it is lines of objects or one document."""

from __future__ import annotations

import json
import re
from itertools import islice
from typing import Any

_OPENS = re.compile(rb"\s*(\{\s*(\"|\}|$)|\[)")
_LOOKED_AT = 40
"""Lines looked at for one that is an object by itself."""


def is_document(head: bytes) -> bool:
    """Whether text that begins with ``head`` is one JSON value with records in it, not lines of objects.

    >>> is_document(b'{\\n "log_history": ['), is_document(b'{"loss": 2.5}\\n{"loss": 2.4}\\n')
    (True, False)
    """
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if _OPENS.match(text) is None:
        return False
    lines = [line.strip() for line in islice(text.split(b"\n"), _LOOKED_AT) if line.strip()]
    first = _parsed(lines[0])
    if isinstance(first, dict):
        return len(lines) == 1 and any(isinstance(value, dict | list) for value in first.values())
    if isinstance(first, list) or lines[0] in (b"[", b"{") or lines[0].startswith((b"[{", b"[ {")):
        return _is_begin(text) or len(lines) == 1
    return _is_begin(text) and not any(isinstance(_parsed(line), dict) for line in lines[1:])


def _is_begin(text: bytes) -> bool:
    """Whether ``text`` is JSON up to its end, where it may be cut; a log may begin with a bracket too."""
    decoded = text.decode("utf-8", "replace").rstrip()
    try:
        _, end = json.JSONDecoder().raw_decode(decoded)
    except json.JSONDecodeError as error:
        return error.pos >= len(decoded) - 1 or error.msg.startswith("Unterminated string")
    except RecursionError:
        return False
    return not decoded[end:].strip()


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
