"""Whether two names mean the same device or host: they are spelled differently wherever they are printed.

Standard library only: this module is imported inside training jobs.
"""

from __future__ import annotations

import re

_INDEX = re.compile(r"(?:cuda|gpu|npu|nvidia|davinci|device|card)?[ :_/-]?(\d{1,4})")
_PCI = re.compile(r"(?:pci:)?0*([0-9a-f]{1,8}):([0-9a-f]{2}):([0-9a-f]{2})(?:\.[0-9a-f])?")


def is_same_device(one: str, other: str) -> bool:
    """Whether two names mean one device of a host.

    >>> is_same_device("cuda:3", "3"), is_same_device("00000000:90:1C.0", "PCI:0000:90:1c")
    (True, True)
    """
    return _device(one) == _device(other)


def is_index(name: str | None) -> bool:
    """Whether a name is the number of a device on its host.

    >>> is_index("cuda:3"), is_index("GPU-5a21c"), is_index(None)
    (True, False, False)
    """
    return name is not None and _INDEX.fullmatch(name.strip().lower().removeprefix("/dev/")) is not None


def is_same_host(one: str | None, other: str | None) -> bool:
    """Whether two names can mean one host; one that is not said can be any.

    >>> is_same_host("node-07", "node-07.cluster.local"), is_same_host("node-07", "node-08")
    (True, False)
    """
    if one is None or other is None:
        return True
    first, second = one.lower(), other.lower()
    if first == second:
        return True
    # Only one of them with a domain is one host; addresses have dots that mean something else.
    short = first.partition(".")[0] == second.partition(".")[0]
    return short and ("." in first) != ("." in second) and not first.partition(".")[0].isdigit()


def _device(name: str) -> str:
    lowered = name.strip().lower().removeprefix("/dev/")
    if found := _INDEX.fullmatch(lowered):
        return str(int(found.group(1)))
    if found := _PCI.fullmatch(lowered):
        domain, bus, slot = found.groups()
        return f"{int(domain, 16):x}:{bus}:{slot}"
    return lowered
