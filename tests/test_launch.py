"""Who a process is, by what launchers say."""

from __future__ import annotations

import pytest

from firstfault.launch import launch_from

TORCHRUN = {
    "RANK": "11",
    "WORLD_SIZE": "16",
    "LOCAL_RANK": "3",
    "LOCAL_WORLD_SIZE": "8",
    "TORCHELASTIC_RUN_ID": "llama",
    "TORCHELASTIC_RESTART_COUNT": "2",
    "TORCHELASTIC_MAX_RESTARTS": "3",
    "SLURMD_NODENAME": "node-07",
}
SLURM = {
    "SLURM_PROCID": "5",
    "SLURM_NTASKS": "8",
    "SLURM_LOCALID": "1",
    "SLURM_TASKS_PER_NODE": "4(x2)",
    "SLURM_JOB_NAME": "pretrain",
    "SLURM_JOB_ID": "991",
    "SLURM_RESTART_COUNT": "1",
    "SLURMD_NODENAME": "node-07",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "SLURMD_NODENAME": "node-07",
}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (TORCHRUN, ("llama", 11, 16, 3, 8, 2)),
        (SLURM, ("pretrain-991", 5, 8, 1, 4, 1)),
        (OPEN_MPI, ("train", 1, 2, 1, 2, 0)),
        ({**TORCHRUN, "SLURM_RESTART_COUNT": "1"}, ("llama", 11, 16, 3, 8, 6)),
        ({**TORCHRUN, "FIRSTFAULT_RUN": "mine", "FIRSTFAULT_ATTEMPT": "9"}, ("mine", 11, 16, 3, 8, 9)),
        ({"RANK": "-1", "WORLD_SIZE": "many", "TORCHELASTIC_RUN_ID": "none"}, ("train", 0, None, 0, None, 0)),
    ],
)
def test_a_launcher_says_who_a_process_is(environ: dict[str, str], expected: tuple[object, ...]) -> None:
    found = launch_from({"SLURMD_NODENAME": "node-07", **environ}, "/home/a/train.py")
    assert found.host == "node-07"
    assert (
        found.run,
        found.rank,
        found.world_size,
        found.local_rank,
        found.local_size,
        found.attempt,
    ) == expected
