"""`python -m`, `python -P`, `dvc` and `figura`, forked from a process that has loaded PyTorch, DVC and other packages.

To load them takes most of the time of most commands. Each command loads the code of figura from its own project.
"""

import atexit
import gc
import marshal
import os
import runpy
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path

PACKAGES = (
    "accelerate", "celery", "cv2", "dvc.commands.repro", "dvc.repo.experiments.queue.celery", "matplotlib.pyplot",
    "numba", "pandas", "pycocotools.mask", "pydantic", "ruamel.yaml", "safetensors.torch", "torch",
    "torch._inductor.config",  # which a training loads as it asks for deterministic algorithms
    "tqdm",
)  # fmt: skip
COMMAND = """#!{python} -IS
import _socket, array, marshal, os, sys

arguments = sys.argv[1:] if sys.argv[0].endswith("/python") else ["-m", os.path.basename(sys.argv[0]), *sys.argv[1:]]
if arguments[:1] not in (["-m"], ["-P"]) or os.environ.get("OMP_NUM_THREADS") != "1":
    os.execv({python!r}, [{python!r}, *arguments])
server = _socket.socket(_socket.AF_UNIX)
server.connect({address!r})
server.sendmsg([b"0"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))])
server.sendall(marshal.dumps((arguments, os.getcwd(), dict(os.environ))))
server.shutdown(_socket.SHUT_WR)
os._exit(server.recv(1)[0])
"""


@cache
def preloaded() -> str:
    """Return a folder with these commands, for PATH; the process that they are forked from ends with this one."""
    folder = Path(tempfile.mkdtemp(prefix="figura-"))
    atexit.register(shutil.rmtree, folder)
    for name in ("python", "dvc", "figura"):
        (folder / name).write_text(COMMAND.format(python=sys.executable, address=str(folder / "socket")))
        (folder / name).chmod(0o755)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}
    server = subprocess.Popen(
        [sys.executable, __file__], cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert server.stdout is not None
    assert server.stdout.read(1) == b"1", "the error stands above"
    return str(folder)


def serve() -> None:
    """Fork a command for each connection and answer it with the exit status, until standard input ends."""
    for name in PACKAGES:
        import_module(name)
    gc.freeze()
    path, folder, running = sys.path[1:], Path.cwd(), {}
    listening = socket.socket(socket.AF_UNIX)
    listening.bind("socket")
    listening.listen()
    os.write(1, b"1")
    while True:
        for ready in select.select([0, listening, *running], [], [])[0]:
            if ready == 0:
                os._exit(0)
            elif ready is listening:
                connection, _ = listening.accept()
                if (child := os.fork()) == 0:
                    be_the_command(connection, folder, path)
                running[os.pidfd_open(child)] = child, connection
            else:
                child, connection = running.pop(ready)
                status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                with connection, suppress(OSError):  # nobody may wait any more
                    connection.sendall(bytes([status if status >= 0 else 128 - status]))
                os.close(ready)


def be_the_command(connection: socket.socket, folder: Path, path: list[str]) -> None:
    """Run a module as `python -m` does, or a file as `python -P`, and end this process."""
    _, descriptors, *_ = socket.recv_fds(connection, 1, 3)
    with connection.makefile("rb") as file:
        (option, program, *arguments), current, environment = marshal.load(file)  # a test sends it
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(current)
    os.environ.clear()
    os.environ.update(environment)
    sys.executable, sys.argv = str(folder / "python"), ["", *arguments]
    sys.orig_argv = ["", option, program, *arguments]
    own = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:] = [*([current] if option == "-m" else []), *own, *path]
    status = 1
    try:
        if option == "-m":
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(program, run_name="__main__")
        status = 0
    except SystemExit as end:
        status = exit_status(end.code)
    except BaseException:  # noqa: BLE001, this process ends here
        traceback.print_exc()
    finally:
        threading._shutdown()
        atexit._run_exitfuncs()  # and no more: to take all packages apart takes seconds
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def exit_status(code: object) -> int:
    """Return the exit status of what `sys.exit` got."""
    if isinstance(code, int | None):
        return code or 0
    print(code, file=sys.stderr)
    return 1


if __name__ == "__main__":
    serve()
