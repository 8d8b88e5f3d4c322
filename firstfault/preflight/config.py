"""How much a preflight computes."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

DEFAULT_ROUNDS = 1000
QUICK_ROUNDS = 20
DEFAULT_TIMEOUT_S = 300.0
MAX_ROUNDS = 1 << 24
"""Half a year of rounds of a second."""


class PreflightError(Exception):
    """A preflight that cannot run or go on: names what is missing, and the cure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightConfig:
    """The work of each rank."""

    rounds: int = DEFAULT_ROUNDS
    """Rounds, from 1 to 16 million. One takes about a second of a current accelerator, and a device that
    computes wrong mostly does so within 1000 seconds."""
    seconds: float | None = None
    """Instead of rounds: as many as take so long on rank 0."""
    size: str = ""
    """large (an accelerator), small (a CPU) or tiny (a test); by the device where it is empty."""
    timeout_s: float = DEFAULT_TIMEOUT_S
    """Longest wait for another rank: a container may take minutes to come up, a round takes seconds."""

    def __post_init__(self) -> None:
        if not 1 <= self.rounds <= MAX_ROUNDS:
            raise PreflightError(f"canary: rounds must be from 1 to {MAX_ROUNDS}, got {self.rounds}")
        if self.seconds is not None and not 0 < self.seconds <= MAX_ROUNDS:
            raise PreflightError(
                f"canary: seconds must be above 0 and at most {MAX_ROUNDS}, got {self.seconds}"
            )
        if self.size not in ("", "large", "small", "tiny"):
            raise PreflightError(f"canary: size must be large, small or tiny, got {self.size[:40]!r}")
        if not 0 < self.timeout_s <= 86_400:
            raise PreflightError(f"canary: timeout_s must be above 0 and at most 86400, got {self.timeout_s}")


def require_torch() -> None:
    """Say how to get torch where it is missing.

    Raises:
        PreflightError: it is.
    """
    if find_spec("torch") is None:
        raise PreflightError(
            "canary needs torch: pip install 'firstfault[torch]', or run it where training runs"
        )
