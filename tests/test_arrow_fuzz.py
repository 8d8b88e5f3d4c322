"""Damaged Arrow bytes, hundreds of them, in a process of their own: it must survive."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa

from ingest.arrow_stream import arrow_from_batch

from .test_arrow_stream import identity, sample, stream_of

FUZZ = """
import random, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
from pathlib import Path
from firstfault.wire import Defaults
from ingest.arrow_stream import iter_arrow_file
from ingest.decode import DecodeConfig, Decoder, RawMessage
from ingest.errors import UnreadableInput

rng, path = random.Random(int(sys.argv[1])), Path(sys.argv[2]) / "mutant.arrow"
seeds = [Path(name).read_bytes() for name in sys.argv[3:]]
for _ in range(300):
    data = bytearray(rng.choice(seeds))
    for _ in range(rng.choice([1, 2, 8])):
        at = rng.randrange(len(data))
        match rng.randrange(4):
            case 0: data[at] ^= 1 << rng.randrange(8)
            case 1: data[at : at + 8] = rng.choice([b"\\xff", b"\\x7f", b"\\0"]) * 8
            case 2: del data[at : at + rng.randrange(1, 64)]
            case 3: data[at:at] = data[: rng.randrange(64)]
        data = data or bytearray(1)
    Decoder().decode([RawMessage("t/0", 0, bytes(data), "application/vnd.apache.arrow.stream")])
    path.write_bytes(data)
    try:
        for _ in iter_arrow_file(path, DecodeConfig(), Defaults("job", -1)): pass
    except UnreadableInput: pass
print("survived")
"""


def test_mutated_streams_and_files_never_raise_nor_end_the_process(tmp_path: Path) -> None:
    table = pa.table(
        {
            **identity(20),
            "loss": [1.0, None] * 10,
            "host": pa.array(["a", "b"] * 10).dictionary_encode(),
            "param_checksum": ["ab", None] * 10,
            "note": pa.array(["x", "a longer text than twelve bytes"] * 10, pa.string_view()),
            "odd": pa.array([[1], []] * 10),
        }
    )
    seeds = {
        "plain": stream_of(table),
        "lz4": stream_of(table, compression="lz4"),
        "ours": arrow_from_batch(sample()),
    }
    with pa.ipc.new_file(str(tmp_path / "file"), table.schema) as writer:
        writer.write_table(table)
    for name, data in seeds.items():
        (tmp_path / name).write_bytes(data)
    command = [
        sys.executable,
        "-c",
        FUZZ,
        "1",
        str(tmp_path),
        *(str(tmp_path / name) for name in [*seeds, "file"]),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.stdout.strip() == "survived", done.stderr[-2000:]
