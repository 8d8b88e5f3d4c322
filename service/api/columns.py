"""Curves and matrices as columns that JSON can hold.

Axes: B rows of a curve, T positions, R ranks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from firstfault.telemetry import WHOLE_ITERATION
from service.history_curve import Curve
from service.history_matrix import Matrix
from service.history_summary import fold, summarise

from .values import Answer, Number, Timestamp, Whole, timestamp

_COUNTS = ("positions", "reported", "missing", "nan", "posinf", "neginf")
_STATISTICS = ("min", "p25", "median", "p75", "max")
_CELL = {"anyOf": [{"type": "number"}, {"type": "string"}, {"type": "null"}]}


def _row_schema(schema: dict[str, Any]) -> None:
    schema["items"] = {"type": "array", "items": _CELL}


class CurveColumns(Answer):
    """One value a row in each column.

    Statistics are of the finite values of a row. Where it has none they are NaN or an infinity, whichever
    was reported. Quartiles of a row that stands for several positions are those of the last of them.
    """

    iteration: list[Whole] = Field(description="First iteration of the row.")
    last_iteration: list[Whole] = Field(description="Last iteration of the row.")
    microbatch: list[int | None] = Field(description="Null where the value is of the whole iteration.")
    time: list[Timestamp | None] = Field(description="Newest time in the records of the row.")
    positions: list[Whole] = Field(description="Positions that the row stands for.")
    reported: list[Whole] = Field(description="Values reported.")
    missing: list[Whole] = Field(description="Ranks times positions that reported nothing.")
    nan: list[Whole]
    posinf: list[Whole]
    neginf: list[Whole]
    min: list[Number]
    p25: list[Number]
    median: list[Number]
    p75: list[Number]
    max: list[Number]
    min_rank: list[int | None] = Field(description="The rank of the least finite value.")
    max_rank: list[int | None] = Field(description="The rank of the greatest finite value.")


class CurveHead(Answer):
    """A `CurveAnswer` without its columns: what an Arrow stream says in its schema."""

    run_id: str
    metric: str
    attempt: int
    attempts: list[int] = Field(description="The attempts of which anything is kept.")
    ranks: list[int] | None = Field(description="The ranks that it is made of; null for all.")
    is_downsampled: bool = Field(
        description="Whether rows may stand for several positions; extremes and what is not finite survive."
    )
    is_cut: bool = Field(
        description="Too large: the first iterations of the range are missing. Only where ranks are given."
    )
    kept: list[list[Whole]] = Field(
        description="First and last iterations of which single ranks are kept, for `ranks` and the matrix."
    )


class CurveAnswer(CurveHead):
    """A metric over its ranks, ascending by iteration."""

    columns: CurveColumns


class MatrixHead(Answer):
    """A `MatrixAnswer` without its cells."""

    run_id: str
    metric: str
    attempt: int
    incident_id: str | None
    is_cut: bool = Field(description="Too large: the first iterations of the range are missing.")
    iteration: list[Whole]
    microbatch: list[int | None]
    ranks: list[int]


class MatrixAnswer(MatrixHead):
    """A metric of every rank: one row of ``values`` an iteration, one cell a rank.

    A cell is a number, one of the texts NaN, Infinity and -Infinity, a checksum as hexadecimal text, or
    null: not reported.
    """

    values: list[list[Any]] = Field(json_schema_extra=_row_schema)


def columns_of(curve: Curve) -> CurveColumns:
    """A curve as an answer holds it."""
    columns = curve.columns
    given: dict[str, Any] = {
        name: columns[name].tolist() for name in ("iteration", "last_iteration", *_COUNTS)
    }
    ranks: dict[str, Any] = {
        name: [None if rank < 0 else rank for rank in columns[name].tolist()]
        for name in ("min_rank", "max_rank")
    }
    statistics: dict[str, Any] = {name: statistic(name, columns).tolist() for name in _STATISTICS}
    return CurveColumns(
        **given,
        **ranks,
        **statistics,
        microbatch=microbatches(columns["microbatch"]),
        time=[timestamp(one) for one in columns["time"].tolist()],
    )


def curve_of(matrix: Matrix, points: int) -> Curve:
    """The curve of a matrix's ranks alone, in at most ``points`` rows."""
    assert matrix.values_TR is not None, "checksums have no curve"
    rows = summarise(
        matrix.iteration_T,
        matrix.microbatch_T,
        np.full(len(matrix.iteration_T), np.nan),  # times are kept of whole positions, not of ranks
        ranks_R=matrix.ranks_R,
        values_TR=matrix.values_TR,
        present_TR=matrix.present_TR,
    )
    size = len(rows["iteration"])
    if size > points:
        place = np.arange(size) * points // size
        rows = fold(rows, np.flatnonzero(np.append(True, np.diff(place) != 0)))
    return Curve(matrix.metric, 0, size > points, rows)


def cells_of(matrix: Matrix) -> list[list[Any]]:
    """Rows of cells as JSON can hold them."""
    if matrix.values_TR is None:
        size_T, size_R = matrix.present_TR.shape
        return [[matrix.checksum(t, r) for r in range(size_R)] for t in range(size_T)]
    cells_TR = matrix.values_TR.astype(object)
    for text, is_TR in (
        ("NaN", np.isnan(matrix.values_TR)),
        ("Infinity", matrix.values_TR == np.inf),
        ("-Infinity", matrix.values_TR == -np.inf),
        (None, ~matrix.present_TR),
    ):
        cells_TR[is_TR] = text
    rows: list[list[Any]] = cells_TR.tolist()
    return rows


def microbatches(microbatch: NDArray[np.int32]) -> list[int | None]:
    """Numbers of microbatches; None for a whole iteration."""
    return [None if one == WHOLE_ITERATION else one for one in microbatch.tolist()]


def statistic(name: str, columns: Any) -> NDArray[np.float64]:
    """A statistic; where no value was finite, what was reported instead."""
    finite_B = columns[name]
    has_up_B, has_down_B, has_nan_B = (columns[kind] > 0 for kind in ("posinf", "neginf", "nan"))
    only_up_B = has_up_B & ~has_nan_B & (~has_down_B | (name == "max"))
    only_down_B = has_down_B & ~has_nan_B & (~has_up_B | (name == "min"))
    stand_in_B = np.select([only_up_B, only_down_B], [np.inf, -np.inf], np.nan)
    return np.where(np.isnan(finite_B), stand_in_B, finite_B)
