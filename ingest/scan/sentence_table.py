"""The sentences that are known, by what they tell.

To add one: an entry in the table that fits, with an example as it is printed. The tests read every example,
and `docs/logs.md` lists them.
"""

from __future__ import annotations

from firstfault.telemetry import EventKind

from .fingerprints import read_fingerprint, read_heading, read_tensor
from .hardware_lines import HARDWARE_CLUES
from .mllog import read_mllog
from .sentence_forms import hardware, say
from .sentences import Place, Sentence
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
        "collective_timeout",
        "PyTorch",
        "this rank waited in a collective until the watchdog ended it",
        "Watchdog caught collective",
        r"(?:\[Rank (?P<rank>\d+)\] )?Watchdog caught collective operation timeout: WorkNCCL\(.{0,20}?"
        r"SeqNum=(?P<sequence>\d+), OpType=(?P<collective>\w{1,40}),.{0,200}?ran for (?P<waited_ms>\d+) mil",
        "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE,"
        " Timeout(ms)=600000) ran for 600081 milliseconds before timing out.",
        event=EventKind.HEARTBEAT,
        fields={"phase": "reduce_in"},
        place=Place.NEXT,
    ),
    say(
        "barrier_missed",
        "PyTorch",
        "this rank waited at a barrier, and says which rank did not come",
        "failed to pass monitoredBarrier",
        r"\[Rank (?P<waiter>\d{1,7})\]:? Rank (?P<rank>\d{1,7}) failed to pass monitoredBarrier"
        r"(?: in (?P<waited_ms>\d{1,12}) ms)?",
        "[Rank 0]: Rank 5 failed to pass monitoredBarrier in 30000 ms",
        event=EventKind.HEARTBEAT,
        fields={"phase": "forward"},
        place=Place.NEXT,
    ),
    say(
        "desync_report",
        "PyTorch",
        "of the ranks of a collective this one did not join it",
        "but didn't join collective",
        r"- \[(?P<rank>\d{1,7})\] finished collective #\d+, but didn't join collective "
        r"#(?P<sequence>\d{1,15})",
        "  - [5] finished collective #41, but didn't join collective #42 (count from 1)",
        event=EventKind.HEARTBEAT,
        fields={"phase": "forward"},
        place=Place.NEXT,
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
    say(
        "fingerprint",
        "many trainers",
        "a rank's fingerprint of parameters or gradients",
        ("ank ", "ank:", "ank="),
        None,
        "Rank 1, model 0, layer 0, weight 3.5e-05, bias 7.2e-05",
        reader=read_fingerprint,
    ),
    say(
        "rank_heading",
        "many trainers",
        "the rank of the tensor that is printed below",
        ("ank ",),
        None,
        "TP rank 2:",
        reader=read_heading,
    ),
    say(
        "printed_tensor",
        "many trainers",
        "a tensor of the rank in the heading above",
        ("tensor([",),
        None,
        "tensor([2.9907e-03, -3.1120e-04, 9.9897e-05, 1.7762e-04])",
        reader=read_tensor,
    ),
)
SENTENCES: tuple[Sentence, ...] = (*_LINES, *LOSS_SCALING, *NONFINITE, *MEGATRON, *CHECKPOINTS, *OTHERS)


def sentences_for(line: bytes) -> tuple[Sentence, ...]:
    """The sentences that ``line`` holds, and so every line that differs from it in digits alone.

    The first of them that reads a line tells what is in it: the exact ones stand before the general ones.
    """
    return tuple(each for each in SENTENCES if each.is_in(line) and each.read(line) is not None)
