"""Reads one Parquet file and writes it as Arrow streams to standard output; runs as a child process.

    python parquet_child.py PATH MEMORY_BYTES ROWS

A hostile file can abort its reader or ask for any memory, so the reader lives and dies here, alone,
under a memory limit. Each piece of at most ROWS rows is a whole Arrow stream behind its length in
eight bytes; a length of 0 ends the output. Nested columns are not read: they come as nulls of their
type, so that the parent can count them. Depends on nothing of ours.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    import pyarrow as pa

LENGTH_BYTES = 8


def main(path: str, memory_bytes: int, rows: int) -> int:
    """Write all pieces; 1 with the reason on standard error if the file cannot be read."""
    # No core files, no more memory than given, and one thread: threads reserve address space each.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    import pyarrow as pa

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    out = sys.stdout.buffer
    try:
        for piece in _pieces(path, rows):
            _write(out, piece)
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        sys.stderr.write(f"{error}"[:400])
        return 1
    out.write((0).to_bytes(LENGTH_BYTES, "big"))
    out.flush()
    return 0


def _pieces(path: str, rows: int) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    from pyarrow import parquet

    with parquet.ParquetFile(path, memory_map=False, pre_buffer=False) as file:
        schema = file.schema_arrow
        flat = [field.name for field in schema if not pa.types.is_nested(field.type)]
        if not flat:
            raise ValueError("it has no column of plain values")
        for batch in file.iter_batches(batch_size=rows, columns=flat, use_threads=False):
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            arrays = [
                columns[field.name] if field.name in columns else pa.nulls(batch.num_rows, field.type)
                for field in schema
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema.names)


def _write(out: BinaryIO, piece: pa.RecordBatch) -> None:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, piece.schema) as writer:
        writer.write_batch(piece)
    data = sink.getvalue()
    out.write(data.size.to_bytes(LENGTH_BYTES, "big"))
    out.write(memoryview(data))
    out.flush()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
