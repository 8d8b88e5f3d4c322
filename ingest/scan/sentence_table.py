"""The sentences that are known, by what they tell.

To add one: an entry in the table that fits, with an example as it is printed. The tests read every example,
and `docs/logs.md` lists them.
"""

from __future__ import annotations

from .hardware_lines import HARDWARE_CLUES
from .mllog import read_mllog
from .sentence_forms import hardware, say
from .sentences import Sentence
from .sentences_of_course import CHECKPOINTS, OTHERS
from .sentences_of_faults import MEGATRON, NONFINITE
from .sentences_of_scaling import LOSS_SCALING

_LINES = (
    say(
        "mllog",
        "MLPerf",
        "a line of MLPerf's log: JSON with key, value and metadata",
        ":::MLLOG ",
        None,
        ':::MLLOG {"time_ms": 1782662896958, "key": "train_loss", "value": 1.25, "metadata": {"step": 51}}',
        reader=read_mllog,
    ),
    say(
        "hardware",
        "kernel, drivers, NCCL, Ascend",
        "a line that tells of hardware",
        HARDWARE_CLUES,
        None,
        "node-3 kernel: NVRM: Xid (PCI:0000:10:1c): 79, GPU has fallen off the bus.",
        reader=hardware,
        takes_line=False,
    ),
)
SENTENCES: tuple[Sentence, ...] = (*_LINES, *LOSS_SCALING, *NONFINITE, *MEGATRON, *CHECKPOINTS, *OTHERS)


def sentences_for(line: bytes) -> tuple[Sentence, ...]:
    """The sentences that ``line`` holds, and so every line that differs from it in digits alone.

    The first of them that reads a line tells what is in it: the exact ones stand before the general ones.
    """
    return tuple(each for each in SENTENCES if each.is_in(line) and each.read(line) is not None)
