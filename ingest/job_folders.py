"""The files of a folder that may be logs, and what was passed over in it.

A name does not say that a file is a log, but some say that it is none: hidden files, programs, settings,
checkpoints, pictures. All others are logs if their bytes can be: text, or a format that is read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from firstfault.telemetry import MAX_ITERATION

from .errors import UnreadableInput
from .folders import form_of_folder, is_event_file_name
from .job_names import COMPRESSED_ENDINGS, natural
from .sniff import Format
from .sniff_binary import is_readable_head

_NO_LOGS = frozenset(
    (
        *(".py", ".pyc", ".pyi", ".sh", ".bash", ".c", ".cc", ".cpp", ".cu", ".h", ".hpp", ".rs", ".go"),
        *(".js", ".ts", ".so", ".o", ".a", ".whl", ".egg", ".jar", ".ipynb", ".patch", ".diff", ".yaml"),
        *(".yml", ".toml", ".cfg", ".ini", ".conf", ".env", ".lock", ".md", ".rst", ".html", ".htm"),
        *(
            ".css",
            ".tex",
            ".bib",
            ".pdf",
            ".doc",
            ".docx",
            ".xls",
            ".xlsx",
            ".pt",
            ".pth",
            ".ckpt",
            ".safetensors",
        ),
        *(".bin", ".h5", ".hdf5", ".onnx", ".pb", ".pkl", ".pickle", ".npy", ".npz", ".mat", ".model"),
        *(".vocab", ".sqlite-wal", ".png", ".jpg", ".jpeg", ".gif", ".bmp", ".svg", ".webp", ".tif"),
        *(".tiff", ".mp4", ".avi", ".mov", ".mkv", ".wav", ".mp3", ".flac", ".ogg", ".ttf", ".woff"),
        *(".woff2", ".sum", ".sha256", ".md5", ".pem", ".key", ".pid", ".swp", ".bak", ".tmp", ".db-wal"),
        *(
            ".db-shm",
            ".idx",
            ".lmdb",
            ".mdb",
            ".tfrecord",
            ".tfrecords",
        ),
    )
)
"""Endings of files that are no logs; one that is named on the command line is taken, but a program's."""
_NO_LOG_NAMES = frozenset(
    (
        *("requirements.txt", "vocab.txt", "merges.txt", "license", "license.txt", "readme", "readme.txt"),
        *(
            "notice",
            "makefile",
            "dockerfile",
            "tokenizer.json",
            "tokenizer_config.json",
            "special_tokens_map.json",
        ),
        *(
            "config.json",
            "generation_config.json",
            "vocab.json",
            "added_tokens.json",
            "preprocessor_config.json",
        ),
        *("wandb-metadata.json", "wandb-summary.json", "package.json", "package-lock.json", "hparams.json"),
        *(
            "debug-internal.log",
            "debug-core.log",
            "all_results.json",
            "train_results.json",
            "eval_results.json",
            "test_results.json",
            "predict_results.json",
            "args.json",
            "launch.json",
        ),
    )
)
_STATE_NAMES = frozenset({"trainer_state.json"})
_CHECKPOINT = re.compile(r"(?:checkpoint|ckpt|global_step)[-_](\d{1,15})")
_HEAD_BYTES = 4096
_TRACKER_FOLDERS = ("files", "logs", "tmp")
"""Folders beside a ``.wandb`` file, which hold the same run once more, or nothing of it."""
_TOLD = 5
"""Names of files passed over that are told; more of them say nothing new."""


@dataclass(slots=True)
class PassedOver:
    """Files in folders that were not taken, by reason."""

    by_reason: dict[str, list[str]] = field(default_factory=dict)

    def add(self, path: Path, reason: str) -> None:
        """Note a file."""
        self.by_reason.setdefault(reason, []).append(path.name)

    def lines(self) -> Iterator[str]:
        """A sentence for each reason: how many, and the first names."""
        for reason, names in self.by_reason.items():
            more = ", …" if len(names) > _TOLD else ""
            files = "1 file was" if len(names) == 1 else f"{len(names)} files were"
            yield f"{files} passed over: {reason} ({', '.join(names[:_TOLD])}{more})"


def expand(path: Path, passed: PassedOver | None = None) -> list[Path]:
    """The path itself, or the logs in it if it is a folder: a folder that is one run stands for itself.

    Raises:
        UnreadableInput: nothing is there, or a folder holds no file that may be a log.
    """
    if path.is_dir():
        passed = passed or PassedOver()
        found = _newest_states(list(_walk(path, frozenset(), passed)), passed)
        if not found:
            why = "; ".join(passed.lines()) or "it holds no file"
            raise UnreadableInput(f"{path}: a folder must hold a readable file: {why}")
        return found
    if not path.exists():
        raise UnreadableInput(f"{path}: must be a file, a folder or -, but nothing is there")
    return [path]


def _newest_states(files: list[Path], passed: PassedOver) -> list[Path]:
    """The files less the states of a trainer at earlier checkpoints, each of which begins the newest."""
    newest: dict[tuple[Path, str], Path] = {}
    for path in files:
        if path.name in _STATE_NAMES:
            known = newest.setdefault(_owner_of(path), path)
            newest[_owner_of(path)] = max(known, path, key=_age_of)
    kept = []
    for path in files:
        if path.name in _STATE_NAMES and newest[_owner_of(path)] != path:
            passed.add(path.parent / path.name, "state of an earlier checkpoint of the same run")
        else:
            kept.append(path)
    return kept


def _owner_of(path: Path) -> tuple[Path, str]:
    """The folder of the run that a state belongs to."""
    return (path.parent.parent if _CHECKPOINT.fullmatch(path.parent.name) else path.parent, path.name)


def _age_of(path: Path) -> int:
    """Higher for later states; that in the folder of the run itself is the last."""
    found = _CHECKPOINT.fullmatch(path.parent.name)
    return int(found.group(1)) if found else MAX_ITERATION


def _walk(folder: Path, above: frozenset[str], passed: PassedOver) -> Iterator[Path]:
    identity = os.path.realpath(folder)
    if identity in above:  # a link back to a folder that is being read
        return
    try:
        entries = sorted(folder.iterdir(), key=lambda entry: natural(entry.name))
        form = form_of_folder(folder)
    except OSError as error:
        raise UnreadableInput(f"{folder}: {error.strerror}") from error
    if form is not None:
        yield folder
    if form is Format.MLFLOW:
        return
    is_tracker = any(entry.name.endswith(".wandb") for entry in entries)
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            if is_tracker and entry.name in _TRACKER_FOLDERS:
                passed.add(entry, "folder of a W&B run whose records are read")
                continue
            yield from _walk(entry, above | {identity}, passed)
        elif entry.is_file() and not (form is Format.TENSORBOARD and is_event_file_name(entry.name)):
            why = _why_not(entry)
            if why is None:
                yield entry
            else:
                passed.add(entry, why)


def _why_not(path: Path) -> str | None:
    """Why a file in a folder is not taken; None if it is."""
    name = path.name.lower()
    for ending in COMPRESSED_ENDINGS:
        name = name.removesuffix(ending)
    if name in _NO_LOG_NAMES or Path(name).suffix in _NO_LOGS:
        return "no log by its name"
    try:
        with path.open("rb") as stream:
            head = stream.read(_HEAD_BYTES)
    except OSError as error:
        return f"cannot be opened ({error.strerror})"
    # An empty file may be that of a rank which died before it wrote.
    return None if not head or is_readable_head(head) else "binary, in no format that is read"
