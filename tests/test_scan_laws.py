"""Text logs: how they are cut does not matter, and nothing that stands in them can break the scanner."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstfault.wire import Defaults
from ingest.blocks import RecordBatch
from ingest.errors import UnreadableInput
from ingest.joining import concatenate
from ingest.scan.pieces import Piece
from ingest.scan.scanner import TextScanner
from ingest.scan.sieve import Sieve
from ingest.scan.tokens import MAX_SHAPE_BYTES

LINES = (
    b"step %d loss 2.5",
    b"step %d loss nan grad_norm 1.5 lr 0.1",
    b" iteration %d/ 99 | lm loss: 2.5E+00 | grad norm: 1.0 | number of nan iterations: 0 |",
    b" iteration %d/ 99 | loss scale: 1.0 | number of skipped iterations: 0 | number of nan iterations: 0 |",
    b"Epoch %d/9",
    b"Epoch: [1][ %d/99]  Time 0.3 ( 0.4)  Loss 6.9e+00 (6.95e+00)",
    b" %d/99 [=====>....] - ETA: 3:52 - loss: 2.5",
    b"  7%%|#   | %d/99 [00:01<00:10,  8.90it/s, loss=2.5]",
    b"  7%%|#   | %d/99 [00:01<00:10,  8.90it/s]",
    b"{'loss': %d.5, 'grad_norm': nan, 'epoch': 0.1}",
    b"[rank1]: step: %d, loss: 2.5",
    b"val loss: %d.25",
    b"    train/CrossEntropyLoss=%d.5",
    b"| loss | %d.5 |",
    b"| step | %d   |",
    b"--------------",
    b"epoch  train_loss  valid_loss",
    b"%d  2.5  2.75",
    b"%d 2.5",
    b"[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to %d",
    b"The grad norm is nan. Skipping updating the model.",
    b"\x1b[32mstep %d loss 2.5\x1b[0m\r",
    b"",
    b"saved checkpoint %d",
)
TEXTS = st.lists(
    st.tuples(st.sampled_from(LINES), st.integers(0, 60)).map(
        lambda made: made[0] % made[1] if b"%" in made[0] else made[0]
    ),
    max_size=24,
)


def read(pieces: list[bytes]) -> RecordBatch | str:
    """All that is read of a text in pieces, or why nothing was."""
    scanner = TextScanner(Defaults(run="run", rank=None), "log")
    batches = [scanner.decode(piece) for piece in pieces]
    try:
        batches.append(scanner.finish() or concatenate([]))
    except UnreadableInput as error:
        return str(error)
    return concatenate([batch for batch in batches if len(batch) or batch.events])


def plain(found: RecordBatch | str) -> object:
    """What was read, to compare: in the order of the log, metrics by name."""
    if isinstance(found, str):
        return found
    return (
        [found.iteration_N.tolist(), found.rank_N.tolist(), found.attempt_N.tolist()],
        {
            name: (column.present_N.tolist(), repr(column.values_N.tolist()))
            for name, column in sorted(found.numbers.items())
            if column.present_N.any()
        },
        [(before, event.to_plain()) for before, event in found.events],
    )


@settings(max_examples=60)
@given(TEXTS, st.lists(st.floats(0, 1), max_size=4))
def test_a_log_reads_the_same_however_it_is_cut(lines: list[bytes], cuts: list[float]) -> None:
    text = b"\n".join(lines) + b"\n"
    places = [0, *sorted(int(cut * len(text)) for cut in cuts), len(text)]

    assert plain(read([text[start:stop] for start, stop in pairwise(places)])) == plain(read([text]))


@settings(max_examples=150)
@given(
    st.lists(
        st.sampled_from((*LINES, b"nan", b":", b"|", b"[", b"1e", b"=", b"\xff", b"\x00", b"%", b",")),
        max_size=30,
    )
)
def test_no_text_breaks_the_scanner(parts: list[bytes]) -> None:
    found = read([b" ".join(parts).replace(b"saved", b"\n")])

    assert isinstance(found, str) or len(found.iteration_N) == len(found.rank_N)


UNITS = (b"a", b"1", b"1 ", b"nan ", b"loss: ", b"[", b"| ", b"1,234", b"  ", b"e1", b"x: 1, ", b"A b ")


@pytest.mark.parametrize("unit", UNITS)
def test_a_long_line_of_anything_is_no_more_work_than_its_beginning(unit: bytes) -> None:
    """What is looked at of a line is bounded, so that no regular expression meets a long one."""
    longest = max(len(made) for made in _looked_at(unit * (20_000 // len(unit))))

    assert longest <= MAX_SHAPE_BYTES


def _looked_at(line: bytes) -> list[bytes]:
    piece = Piece(line + b"\n")
    return [group.shape for group in piece.by_shape(Sieve())] or [b""]


def test_numbers_of_ranks_beyond_all_bounds_stay_in_bounds() -> None:
    found = read(
        [b"rank: 99999999999999999999, step: 1, loss: 2.5\nrank: 3, step: 99999999999999999999, loss: 2.5\n"]
    )

    assert not isinstance(found, str)
    assert np.isfinite(found.iteration_N).all()
