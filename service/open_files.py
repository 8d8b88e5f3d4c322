"""How many files and sockets the process may have open: raised as far as the system allows."""

from __future__ import annotations

import resource


def allow_open_files(wanted: int) -> int:
    """Let the process open so many files at once, if it may; how many it may then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    if soft < wanted:
        top = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        soft = max(soft, top)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft
