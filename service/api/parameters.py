"""Parameters that several routes have."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query
from pydantic import AfterValidator, WithJsonSchema
from starlette.convertors import PathConvertor, register_url_convertor

from firstfault.wire_values import RULE_LABEL, RULE_RUN, is_label_text, is_run_name


class TextConvertor(PathConvertor):
    """The rest of a path, line ends and all, which the framework's ``path`` leaves unmatched."""

    regex = "(?s:.*)"


register_url_convertor("text", TextConvertor())


def _check_name(name: str) -> str:
    if not is_run_name(name):
        raise ValueError(RULE_RUN)
    return name


def _check_label(text: str) -> str:
    if not text or not is_label_text(text):
        raise ValueError(f"{RULE_LABEL}, and not empty")
    return text


Name = Annotated[
    str,
    AfterValidator(_check_name),
    WithJsonSchema({"type": "string", "pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f]{1,64}$"}),
]
"""A name out of telemetry: any text of up to 256 bytes without control characters, slashes and all.

The schema counts characters, of which 64 always fit."""
LabelText = Annotated[
    str,
    AfterValidator(_check_label),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": 256}),
]
"""The value of a label out of telemetry, as of a host: any text of up to 1024 bytes; 256 characters fit."""
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
