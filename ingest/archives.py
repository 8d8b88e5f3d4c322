"""Archives of logs (zip, tar, packed tar), unpacked into a folder that is then read like any other.

What an archive may ask of us is bounded: the number of its members, the bytes that they unpack to, and
where they land. Links, devices and names that lead out of the folder are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO

from .compression import open_bounded
from .errors import UnreadableInput

_NAMES = (".zip", ".tar", ".tgz", ".txz", ".tbz2", ".tar.gz", ".tar.xz", ".tar.bz2", ".tar.zst")
_COPY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveConfig:
    """What an archive may hold."""

    max_members: int = 20_000
    """Files: twice the ranks of the greatest job the service is sized for, each with a log."""
    max_bytes: int = 64 << 30
    """Bytes on the disk in all: 64 GiB."""


DEFAULT_ARCHIVE = ArchiveConfig()


def is_archive(path: Path) -> bool:
    """Whether a file is named like an archive; by content many others are zip files, models among them."""
    return path.name.lower().endswith(_NAMES) and path.is_file()


def unpack(path: Path, folder: Path, config: ArchiveConfig = DEFAULT_ARCHIVE) -> None:
    """Write the files of the archive ``path`` into ``folder``.

    Raises:
        UnreadableInput: it is damaged, or holds more than allowed.
    """
    import tarfile
    import zipfile
    import zlib

    room = config.max_bytes
    try:
        with ExitStack() as stack:
            for count, (name, member) in enumerate(_members(path, stack)):
                if count >= config.max_members:
                    raise UnreadableInput(f"{path}: must hold at most {config.max_members} files, got more")
                target = _target(folder, name)
                if target is not None:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    room -= _copy(member, target, room)
                    if room < 0:
                        raise UnreadableInput(f"{path}: must unpack to at most {config.max_bytes} bytes")
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, NotImplementedError) as error:
        raise UnreadableInput(f"{path}: a damaged archive: {error}") from error
    except (OSError, RuntimeError) as error:  # a member that is encrypted, or clashes with a folder
        raise UnreadableInput(f"{path}: cannot be unpacked: {error}") from error


def _members(path: Path, stack: ExitStack) -> Iterator[tuple[str, IO[bytes]]]:
    """The name of each file in the archive, and its bytes."""
    import tarfile
    import zipfile

    if path.name.lower().endswith(".zip"):
        archive = stack.enter_context(zipfile.ZipFile(path))
        for info in archive.infolist():
            if not info.is_dir():
                with archive.open(info) as member:
                    yield info.filename, member
        return
    stream = stack.enter_context(path.open("rb"))
    unpacked = _Chunks(open_bounded(stream))
    with tarfile.open(fileobj=unpacked, mode="r|") as tar:  # type: ignore[call-overload]
        for entry in tar:
            if entry.isfile() and (found := tar.extractfile(entry)) is not None:
                yield entry.name, found


class _Chunks:
    """Chunks as a file that can be read in any sizes."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""

    def read(self, size: int) -> bytes:
        """The next bytes, fewer only at the end."""
        parts, missing = [self._rest[:size]], size - len(self._rest[:size])
        self._rest = self._rest[size:]
        while missing > 0 and (chunk := next(self._chunks, b"")):
            parts.append(chunk[:missing])
            self._rest = chunk[missing:]
            missing -= len(parts[-1])
        return b"".join(parts)


def _target(folder: Path, name: str) -> Path | None:
    """Where a member lands; None for a name that leads elsewhere."""
    parts = PurePosixPath(name.replace("\\", "/")).parts
    if not parts or any(part in ("..", "/") or "\0" in part or part.endswith(":") for part in parts):
        return None
    return folder.joinpath(*(part[:200] for part in parts))


def _copy(member: IO[bytes] | BinaryIO, target: Path, room: int) -> int:
    """Bytes written; more than ``room`` says that there was no room."""
    written = 0
    with target.open("wb") as file:
        while written <= room and (piece := member.read(_COPY_BYTES)):
            file.write(piece)
            written += len(piece)
    return written
