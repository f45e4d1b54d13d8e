"""Two ranks that meet over gloo, forked from the process of a test, which has loaded PyTorch already."""

import os
import socket
import sys
import traceback
from collections.abc import Callable

import torch
import torch.distributed
from accelerate.state import AcceleratorState

# PyTorch counts devices at its first backward, and forbids forks where it finds one; torch.onnx registers one later
torch.ones((), requires_grad=True).backward()


def run_in_two(job: Callable[[], object]) -> None:
    """Call `job` in two ranks, as a launcher would start them; raise AssertionError where one of them fails."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = [os.fork() or _rank(job, rank, port) for rank in range(2)]
    statuses = [os.waitpid(process, 0)[1] for process in ranks]
    assert statuses == [0, 0], f"wait statuses of the ranks: {statuses}; what they said stands above"


def _rank(job: Callable[[], object], rank: int, port: int) -> int:
    """Be a rank: call `job` and end this process."""
    code = 1
    try:
        own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_PORT": port}
        os.environ.update({"MASTER_ADDR": "127.0.0.1", **{name: str(value) for name, value in own.items()}})
        AcceleratorState._reset_state(reset_partial_state=True)
        job()
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
        code = 0
    except BaseException:  # noqa: BLE001  # pytest must not go on in a rank
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
