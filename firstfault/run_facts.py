"""What a training process can say of itself at its start: software, device, host.

Only what the job has imported already is looked at: the probe makes nobody wait for an import, and never
initializes a device.
"""

from __future__ import annotations

import contextlib
import hashlib
import platform
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_DRIVER = Path("/proc/driver/nvidia/version")
_SOFTWARE = ("torch", "numpy", "transformers", "lightning", "deepspeed", "megatron", "jax")


def start_facts(rank: int, host: str) -> dict[str, object]:
    """What ``run_start`` says of this rank alone, each as a mapping from the rank; and the versions."""
    software, device = software_facts(), device_facts()
    mine = {
        "hosts": host,
        "device_models": device.get("model"),
        "device_ids": device.get("id"),
        "software": fingerprint(software),
    }
    return {
        **{name: {str(rank): value} for name, value in mine.items() if value is not None},
        "versions": software,
    }


def labels_of(facts: Mapping[str, object], rank: int) -> dict[str, str]:
    """Host and device as labels, under which a verdict names its suspects."""
    found = {}
    for name, label in (("hosts", "host"), ("device_ids", "device")):
        of_rank = facts.get(name)
        if isinstance(of_rank, Mapping) and str(rank) in of_rank:
            found[label] = str(of_rank[str(rank)])
    return found


def software_facts() -> dict[str, str]:
    """Versions of what computes, by name; unknown ones are left out."""
    found = {"python": platform.python_version()}
    for name in _SOFTWARE:
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            found[name] = str(version)
    torch = sys.modules.get("torch")
    if torch is not None:
        found.update(_torch_facts(torch))
    with contextlib.suppress(OSError):
        driver = re.search(r"\d+\.\d+[.\d]*", _DRIVER.read_text(encoding="utf-8", errors="replace"))
        if driver is not None:
            found["driver"] = driver[0]
    return found


def fingerprint(software: dict[str, str]) -> str:
    """What stays the same between two ranks whose bits may be compared.

    >>> fingerprint({"torch": "2.9.0", "cuda": "12.8"}) == fingerprint({"cuda": "12.8", "torch": "2.9.0"})
    True
    """
    told = ", ".join(f"{name} {version}" for name, version in sorted(software.items()))
    return hashlib.blake2b(told.encode("utf-8", "replace"), digest_size=6).hexdigest()


def device_facts(device: Any = None) -> dict[str, str]:
    """Model and id of the device that this process computes on; nothing where there is none or it sleeps."""
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    try:
        if not torch.cuda.is_available() or not torch.cuda.is_initialized():
            return {}
        index = torch.cuda.current_device() if device is None else torch.device(device).index
        if device is not None and torch.device(device).type != "cuda":
            return {}
        properties = torch.cuda.get_device_properties(index)
        uuid = getattr(properties, "uuid", None)
        found = {"model": str(properties.name)}
        return found if uuid is None else {**found, "id": f"GPU-{str(uuid).removeprefix('GPU-')}"}
    except Exception:  # drivers raise anything; the job may well train without being known
        return {}


def _torch_facts(torch: Any) -> dict[str, str]:
    found = {}
    version = getattr(torch, "version", None)
    for name in ("cuda", "hip"):
        if getattr(version, name, None):
            found[name] = str(getattr(version, name))
    with contextlib.suppress(Exception):  # builds without CUDA or NCCL raise one thing or another
        if torch.cuda.is_available():
            nccl = torch.cuda.nccl.version()
            found["nccl"] = ".".join(map(str, nccl)) if isinstance(nccl, tuple) else str(nccl)
            found["cudnn"] = str(torch.backends.cudnn.version())
    return found
