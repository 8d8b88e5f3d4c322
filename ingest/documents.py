"""The formats that are read as a whole, each by a reader that is loaded when first needed."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from .log_reader import DocumentReader
from .sniff import Format

DOCUMENTS: Mapping[Format, str] = {
    Format.JSON: "ingest.json_document:read",
    Format.TENSORBOARD: "ingest.tensorboard_events:read",
    Format.MLFLOW: "ingest.mlflow_store:read",
    Format.MLFLOW_DATABASE: "ingest.mlflow_database:read",
    Format.WANDB: "ingest.wandb_log:read",
}
"""Module and function (``ingest.mlflow_store:read``) that read a format; others are read line by line."""


def document_reader(form: Format) -> DocumentReader:
    """The reader of ``form``, which must be one of `DOCUMENTS`."""
    module, _, function = DOCUMENTS[form].partition(":")
    reader: DocumentReader = getattr(import_module(module), function)
    return reader
