"""Archives of logs: what is in them is read like a folder."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.archives import ArchiveConfig, unpack
from ingest.errors import UnreadableInput
from service.inputs import find_inputs

ROWS = b"step,loss\n1,2\n2,1\n"


def tar_of(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz" if path.name.endswith("gz") else "w") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def zip_of(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


@pytest.mark.parametrize("name", ["logs.zip", "logs.tar", "logs.tar.gz"])
def test_the_logs_of_an_archive_are_jobs(tmp_path: Path, name: str) -> None:
    build = zip_of if name.endswith("zip") else tar_of
    path = build(tmp_path / name, {"out/rank0.csv": ROWS, "out/rank1.csv": ROWS, "other.csv": ROWS})

    with find_inputs([path]) as inputs:
        jobs = {job.run: [file.rank for file in job.files] for job in inputs.jobs}
        places = [Path(file.path) for job in inputs.jobs for file in job.files]
        assert all(place.exists() for place in places)

    assert jobs == {"other": [None], "out": [0, 1]}
    assert not any(place.exists() for place in places)


@pytest.mark.parametrize("build", [zip_of, tar_of])
def test_names_that_lead_out_of_the_folder_are_left_out(tmp_path: Path, build: object) -> None:
    assert callable(build)
    name = "a.zip" if build is zip_of else "a.tar"
    path = build(tmp_path / name, {"../out.csv": ROWS, "/abs.csv": ROWS, "in.csv": ROWS})
    folder = tmp_path / "deep" / "folder"
    folder.mkdir(parents=True)

    unpack(path, folder)

    assert [each.name for each in folder.iterdir()] == ["in.csv"]
    assert not (tmp_path / "deep" / "out.csv").exists()


def test_links_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        info = tarfile.TarInfo("link.csv")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/hostname"
        archive.addfile(info)
    (tmp_path / "to").mkdir()

    unpack(path, tmp_path / "to")

    assert not list((tmp_path / "to").iterdir())


@pytest.mark.parametrize(
    ("config", "rule"),
    [
        (ArchiveConfig(max_members=2), "at most 2 files"),
        (ArchiveConfig(max_bytes=1000), "at most 1000 bytes"),
    ],
)
def test_an_archive_that_asks_for_too_much_is_refused(
    tmp_path: Path, config: ArchiveConfig, rule: str
) -> None:
    path = zip_of(tmp_path / "a.zip", {f"{at}.csv": bytes(900) for at in range(3)})

    with pytest.raises(UnreadableInput, match=rule):
        unpack(path, tmp_path / "to", config)


@given(st.integers(0, 400), st.binary(min_size=1, max_size=20), st.booleans())
def test_a_damaged_archive_gives_files_or_a_reason(
    tmp_path_factory: pytest.TempPathFactory, at: int, junk: bytes, is_zip: bool
) -> None:
    base = tmp_path_factory.getbasetemp()
    path = base / ("a.zip" if is_zip else "a.tar.gz")
    (zip_of if is_zip else tar_of)(path, {"a.csv": ROWS, "b/c.csv": ROWS})
    raw = bytearray(path.read_bytes())
    raw[at % len(raw) : at % len(raw) + len(junk)] = junk
    path.write_bytes(bytes(raw))

    try:
        unpack(path, tmp_path_factory.mktemp("to"))
    except UnreadableInput as error:
        assert str(path) in str(error)
