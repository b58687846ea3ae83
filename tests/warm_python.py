"""Runs Python programs in processes that are forked from one in which PyTorch and the compiler are imported already.

Importing them takes four seconds of processor time, which is most of what a small program in a new process takes.  The
process that is forked has only imported modules.  Use `subprocess` instead for programs whose imports are what is
tested, that need options of the interpreter, or that must differ in the seed of `hash`, which forked processes share.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import fcntl
import functools
import gc
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import types
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from tests.limits import HANG_S

ROOT = Path(__file__).parents[1]
IMPORTED = (
    *("torch", "torch._dynamo", "torch._functorch.aot_autograd", "torch._inductor.decomposition"),
    *("compiler_core.pipeline.frame", "compiler_core.pipeline.graph", "compiler_core.tools.testing"),
    *("ipykernel.kernelapp", "ipykernel.ipkernel", "anywidget"),
)
STACKS_S = 1.0
"""How long a process that is killed has for printing its stacks before the next one does, into the same file."""
END_S = 10.0
"""How long is waited at most until a killed process is gone."""
FIXED_AT_IMPORT = ("TRITON_INTERPRET",)
"""Environment variables that an imported module has read: there is one warm process for each of their values."""
SOCKET = "CUTAWAY_TEST_WARM"
"""The environment variable with the socket of the warm process from which this one was forked."""
SHARED = "CUTAWAY_TEST_SHARED"
"""The environment variable with the number of the process that has started all workers, and the folder they share."""


def run(
    arguments: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: Path | str = ROOT, timeout: float = HANG_S
) -> subprocess.CompletedProcess[str]:
    """Runs ``python ARGUMENTS``, where they are ``-c TEXT``, ``-m MODULE …`` or ``FILE …``.

    Like `subprocess.run` with captured text: `env` is the whole environment.  Raises `subprocess.TimeoutExpired` with
    what was written, to which each process that was left has added the stacks of its threads.
    """
    with tempfile.TemporaryDirectory() as folder:
        outputs = [Path(folder, "stdout"), Path(folder, "stderr")]
        try:
            status = start(arguments, outputs=outputs, env=env, cwd=cwd).wait(timeout)
        except subprocess.TimeoutExpired as error:
            for output in outputs:
                error.add_note(output.read_text())
            raise
        messages = [output.read_text() for output in outputs]
    return subprocess.CompletedProcess(list(arguments), status, *messages)


class Process:
    """A process that was forked from a warm one."""

    def __init__(self, arguments: Sequence[str], connection: socket.socket) -> None:
        self.arguments, self._connection = list(arguments), connection
        self._replies = connection.makefile()
        self.pid = int(self._replies.readline())

    def has_ended(self) -> bool:
        return bool(select.select([self._connection], [], [], 0)[0])

    def wait(self, timeout: float | None = None) -> int:
        """Waits until the process ends and returns its exit status.

        If that takes longer, the process and its children print the stacks of their threads and are killed.
        """
        if timeout is not None and not select.select([self._connection], [], [], timeout)[0]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(self.pid)
                family = [process, *process.children(recursive=True)]
                for each in family:
                    _send(each, signal.SIGQUIT)
                    psutil.wait_procs([each], timeout=STACKS_S)
                for each in family:
                    _send(each, signal.SIGKILL)
                psutil.wait_procs(family, timeout=END_S)
            self._close()
            raise subprocess.TimeoutExpired(self.arguments, timeout)
        if not self._replies.closed:
            self._status = int(self._replies.readline())
            self._close()
        return self._status

    def _close(self) -> None:
        """A process that still runs is killed then."""
        self._replies.close()
        self._connection.close()


def _send(process: psutil.Process, number: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)


def start(
    arguments: Sequence[str], *, outputs: Sequence[Path], env: Mapping[str, str] | None = None, cwd: Path | str = ROOT
) -> Process:
    """Starts ``python ARGUMENTS``, as `run` does; standard output and error go to the files `outputs`."""
    for output in outputs:
        output.touch()
    environment = dict(os.environ if env is None else env)
    fixed = tuple((name, environment[name]) for name in FIXED_AT_IMPORT if name in environment)
    request = {"arguments": list(arguments), "env": environment, "cwd": str(cwd), "outputs": list(map(str, outputs))}
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address(fixed))
    connection.sendall(json.dumps(request).encode() + b"\n")
    return Process(arguments, connection)


def kernel_spec(folder: Path, name: str) -> dict[str, str]:
    """Writes the specification of a kernel into a folder, and returns environment variables with which Jupyter finds it
    under this name: IPython's kernel, in a process in which PyTorch is imported already."""
    spec = folder / "kernels" / name / "kernel.json"
    spec.parent.mkdir(parents=True)
    argv = [sys.executable, "-S", "-E", str(ROOT / "tests" / "warm_kernel.py"), address()]
    spec.write_text(
        json.dumps({"argv": [*argv, "{connection_file}"], "display_name": "Python 3", "language": "python"})
    )
    others = filter(None, [os.environ.get("JUPYTER_PATH")])
    return {"JUPYTER_PATH": os.pathsep.join([str(folder), *others])}


@functools.cache
def address(fixed: tuple[tuple[str, str], ...] = ()) -> str:
    """The socket of the warm process with these environment variables, which is started by the first call.

    All workers of pytest use the same one: the first that needs it starts it, and it ends after the process of which
    they are children.
    """
    if not fixed and SOCKET in os.environ:
        return os.environ[SOCKET]
    if SHARED not in os.environ:
        own = tempfile.mkdtemp()
        atexit.register(_stop, own, _start(own, fixed, os.getpid()))
        return f"{own}/socket"
    until, _, shared = os.environ[SHARED].partition(" ")
    folder = Path(shared, "warm" + "".join(f"-{name}={value}" for name, value in fixed))
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            folder.mkdir()
            os.waitpid(_start(str(folder), fixed, int(until)), 0)  # it goes on in a fork, as no child of this worker
    return f"{folder}/socket"


def share(folder: Path) -> None:
    """Has this worker of pytest, and processes that it starts, use warm processes with the workers beside it."""
    os.environ[SHARED] = f"{os.getppid()} {folder}"


def _start(folder: str, fixed: tuple[tuple[str, str], ...], until: int) -> int:
    """Starts a warm process, which ends after the process with the number `until`, and returns its number."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{folder}/socket")
    listener.listen()
    listener.set_inheritable(True)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | dict(fixed)
    command = [sys.executable, "-m", "tests.warm_python", str(listener.fileno()), str(until)]
    number = os.posix_spawn(sys.executable, command, environment)
    listener.close()
    return number


def _stop(folder: str, number: int) -> None:
    os.kill(number, signal.SIGKILL)
    os.waitpid(number, 0)
    shutil.rmtree(folder)


# ---- in the warm process ---------------------------------------------------------------------


def serve(listener: socket.socket, until: int) -> dict[str, Any]:
    """Forks a process for each request, until the process with the number `until` has ended.

    Returns the request, in the process that has to run it.
    """
    gc.disable()  # imports make millions of objects that stay
    for name in IMPORTED:
        with contextlib.suppress(ModuleNotFoundError):  # without Jupyter, its tests alone fail
            importlib.import_module(name)
    gc.freeze()  # a collection in a forked process passes over what was imported
    gc.enable()
    try:
        watched: list[Any] = [listener, *([os.pidfd_open(until)] if hasattr(os, "pidfd_open") else [])]  # on Linux
    except ProcessLookupError:
        sys.exit()
    while True:
        ready = select.select(watched, [], [], 5)[0]
        if listener not in ready:
            if ready or not psutil.pid_exists(until):
                sys.exit()
            continue
        connection, _ = listener.accept()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if os.fork():
            connection.close()
            continue
        listener.close()
        with connection.makefile() as lines:
            request: dict[str, Any] = json.loads(lines.readline())
        if pid := os.fork():
            connection.sendall(f"{pid}\n".encode())
            status = _await(pid, connection)
            with contextlib.suppress(OSError):  # nobody waits any more
                connection.sendall(f"{status}\n".encode())
            os._exit(0)
        connection.close()
        return request


def _await(pid: int, connection: socket.socket) -> int:
    """Waits until a process ends and returns its exit status; kills it if nobody waits for it any more."""
    if hasattr(os, "pidfd_open"):  # on Linux
        process: int = os.pidfd_open(pid)
        select.select([process, connection.fileno()], [], [])  # nothing is sent, so that only its end can be read
        if not select.select([process], [], [], 0)[0]:
            os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def become(request: dict[str, Any]) -> None:
    """Makes this process what a new one is that has imported `IMPORTED`, and runs the program."""
    import torch

    if request.get("new_session"):
        os.setsid()
    for number, path in enumerate(request["outputs"], 1):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, number)
        os.close(file)
    faulthandler.register(signal.SIGQUIT)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    tempfile.tempdir = None
    if torch.__version__ >= "2.15":
        atexit.register(gc.unfreeze)  # Triton 3.9 prints its objects that are left at the end, which frozen ones are
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1))
    if "TORCH_TRACE" in os.environ:  # which PyTorch reads when it is imported
        torch._logging._internal.LOG_TRACE_HANDLER = None
        torch._logging._internal._init_logs()
    if filters := os.environ.get("PYTHONWARNINGS"):
        warnings.simplefilter(filters)  # type: ignore[arg-type]
    sys.path[:0] = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    first, *rest = request["arguments"]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if first == "-c":
        sys.argv = ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)
    elif first == "-m":
        sys.argv = rest
        runpy._run_module_as_main(rest[0])  # type: ignore[attr-defined]  # ``__main__`` stays to the end of the process
    else:
        sys.argv = [first, *rest]
        sys.path.insert(0, str(Path(first).parent))
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    if int(sys.argv[2]) != os.getppid() and os.fork():
        os._exit(0)
    become(serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])))
