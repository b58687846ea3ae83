"""Starts a Jupyter kernel that is forked from a warm process (`tests/warm_python.py`).

Jupyter runs it as the kernel: ``python -S -E warm_kernel.py ADDRESS CONNECTION_FILE [OPTION ...]``.  It imports little,
passes signals on to the kernel and ends with it, and the kernel ends with this process.
"""

import json
import os
import signal
import socket
import sys


def main() -> int:
    address, connection_file, *options = sys.argv[1:]
    env = {name: value for name, value in os.environ.items() if name != "JPY_PARENT_PID"}  # the parent is another one
    outputs = [f"{connection_file}.{name}" for name in ("stdout", "stderr")]
    arguments = ["-m", "ipykernel_launcher", "-f", connection_file, *options]
    request = {"arguments": arguments, "env": env, "cwd": os.getcwd(), "outputs": outputs, "new_session": True}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        connection.sendall(json.dumps(request).encode() + b"\n")
        with connection.makefile() as replies:
            pid = int(replies.readline())
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda number, frame: os.kill(pid, number))
            return int(replies.readline() or 1)


if __name__ == "__main__":
    sys.exit(abs(main()))
