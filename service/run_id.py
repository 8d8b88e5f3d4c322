"""The opaque id of a run, the same in the store, in history and in the API."""

from __future__ import annotations

import hashlib


def run_id_of(run: str) -> str:
    """Sixteen hexadecimal digits: run names may hold slashes and anything else.

    >>> run_id_of("llama-7b")
    '349b6e269c37c549'
    """
    return hashlib.blake2b(run.encode(), digest_size=8).hexdigest()
