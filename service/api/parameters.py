"""Parameters that several routes have."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query
from pydantic import AfterValidator, WithJsonSchema

from firstfault.wire_values import RULE_RUN, is_run_name


def _check_name(name: str) -> str:
    if not is_run_name(name):
        raise ValueError(RULE_RUN)
    return name


Name = Annotated[
    str,
    AfterValidator(_check_name),
    WithJsonSchema({"type": "string", "pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f]{1,64}$"}),
]
"""A name out of telemetry: any text of up to 256 bytes without control characters, slashes and all.

The schema counts characters, of which 64 always fit."""
Metric = Annotated[Name, Query(description="As telemetry names it, for instance `loss`.")]
ID = "^[0-9A-Za-z]{1,64}$"
"""What an id may look like: nothing that a store or a file system could take for something else."""
RunId = Annotated[str, Path(pattern=ID, description="Opaque id of a run, as lists give it.")]
IncidentId = Annotated[str, Path(pattern=ID, description="Opaque id of an incident.")]
MuteId = Annotated[str, Path(pattern=ID, description="Opaque id of a rule that mutes.")]
Cursor = Annotated[str | None, Query(description="`next` of the page before.", max_length=512)]
Limit = Annotated[
    int | None, Query(ge=1, lt=2**31, description="Most items of the answer; 100 without, if allowed.")
]
