"""Which of two forms an answer takes: JSON, or columns as an Arrow stream."""

from __future__ import annotations

from fastapi import Request

ARROW = "application/vnd.apache.arrow.stream"
_JSON = "application/json"


def wants_arrow(request: Request) -> bool:
    """Whether `Accept` names Arrow, and JSON no more strongly; whoever names neither gets JSON.

    RFC 9110, section 12.5.1: a weight of 0 is a refusal.
    """
    weights = _weights(request.headers.getlist("accept"))
    asked = weights.get(ARROW, 0.0)
    return asked > 0.0 and asked >= weights.get(_JSON, 0.0)


def _weights(given: list[str]) -> dict[str, float]:
    """The weight of each media type that is named in full.

    >>> _weights(["application/json;q=0.5, application/vnd.apache.arrow.stream", "text/*; q=odd"])
    {'application/json': 0.5, 'application/vnd.apache.arrow.stream': 1.0, 'text/*': 0.0}
    """
    found: dict[str, float] = {}
    for one in ",".join(given).split(","):
        name, *parameters = (part.strip().lower() for part in one.split(";"))
        if name:
            found[name] = max(found.get(name, 0.0), _weight(parameters))
    return found


def _weight(parameters: list[str]) -> float:
    for one in parameters:
        key, _, value = one.partition("=")
        if key.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0
