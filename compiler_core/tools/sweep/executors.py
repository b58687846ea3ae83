"""Executors of other packages in the form that `sweep` needs: `submit`, and futures with `done`, `result`, `cancel`.

Executors of `concurrent.futures`, Dask (``client.get_executor()``), ipyparallel (``client.executor()``) and submitit
(``submitit.AutoExecutor(folder)``) have it already.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class RayExecutor:
    """Runs functions as tasks of Ray, which `ray.init` connected.

    Args:
        options: of each task, such as ``num_cpus=2``.
    """

    def __init__(self, **options: Any) -> None:
        import ray

        self._task = ray.remote(max_retries=3, **options)(_call)

    def submit(self, function: Callable[..., Any], /, *args: Any) -> Any:
        """Starts a task and returns its future."""
        return self._task.remote(function, args).future()


def _call(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    return function(*args)
