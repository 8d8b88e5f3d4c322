"""Curves and matrices as Arrow streams: the same columns as in JSON, NaN as NaN, not reported as null.

What JSON says beside the columns is one JSON text in the metadata of the schema, under `firstfault`.

Axes: B rows of a curve, T positions, R ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from fastapi import Response
from numpy.typing import NDArray
from pydantic import BaseModel

from firstfault.telemetry import WHOLE_ITERATION
from service.history_curve import Curve
from service.history_matrix import Matrix

from .columns import statistic
from .negotiation import ARROW

if TYPE_CHECKING:
    import pyarrow as pa

_METADATA = b"firstfault"
_PLAIN = ("iteration", "last_iteration", "positions", "reported", "missing", "nan", "posinf", "neginf")
_STATISTICS = ("min", "p25", "median", "p75", "max")
_MILLISECONDS = 1000.0


def curve_stream(head: BaseModel, curve: Curve) -> Response:
    """A curve; ``head`` is its answer without the columns."""
    import pyarrow as pa

    columns = curve.columns
    arrays = {name: pa.array(columns[name], pa.int64()) for name in _PLAIN}
    arrays["microbatch"] = _microbatches(columns["microbatch"])
    arrays["time"] = _times(columns["time"])
    arrays |= {name: pa.array(statistic(name, columns), pa.float64()) for name in _STATISTICS}
    for name in ("min_rank", "max_rank"):
        rank_B = columns[name]
        arrays[name] = pa.array(rank_B, pa.int32(), mask=rank_B < 0)
    return _stream(head, arrays)


def matrix_stream(head: BaseModel, matrix: Matrix) -> Response:
    """A matrix: of each position one list with a cell a rank; ``head`` names the ranks."""
    import pyarrow as pa

    size_T, size_R = matrix.present_TR.shape
    missing_K = ~matrix.present_TR.reshape(-1)
    if matrix.values_TR is None:
        texts = [matrix.checksum(t, r) for t in range(size_T) for r in range(size_R)]
        cells = pa.array(texts, pa.string())
    else:
        cells = pa.array(matrix.values_TR.reshape(-1), pa.float64(), mask=missing_K)
    arrays = {
        "iteration": pa.array(matrix.iteration_T, pa.int64()),
        "microbatch": _microbatches(matrix.microbatch_T),
        "values": pa.FixedSizeListArray.from_arrays(cells, size_R),
    }
    return _stream(head, arrays)


def _stream(head: BaseModel, arrays: dict[str, Any]) -> Response:
    import pyarrow as pa

    batch = pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))
    told = head.model_dump_json(exclude=set(arrays)).encode()  # what is a column need not be said twice
    schema = batch.schema.with_metadata({_METADATA: told})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(batch.replace_schema_metadata(schema.metadata))
    return Response(sink.getvalue().to_pybytes(), media_type=ARROW)


def _microbatches(microbatch: NDArray[np.int32]) -> pa.Array:
    import pyarrow as pa

    return pa.array(microbatch, pa.int32(), mask=microbatch == WHOLE_ITERATION)


def _times(time_B: NDArray[np.float64]) -> pa.Array:
    """Times in UTC; null for what is no time between 1970 and 9999, as in JSON."""
    import pyarrow as pa

    is_time_B = (time_B >= 0) & (time_B <= 253_402_300_799)
    millisecond_B = np.where(is_time_B, time_B * _MILLISECONDS, 0).astype(np.int64)
    return pa.array(millisecond_B, pa.timestamp("ms", tz="UTC"), mask=~is_time_B)
