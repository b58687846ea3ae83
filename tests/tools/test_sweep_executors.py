"""Sweeps under Dask, Ray, ipyparallel and submitit: several workers, one killed, and the rows of a local sweep.

Each is skipped where the package is missing; ``pip install -e '.[sweep-tests]'`` installs all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from compiler_core import sweep
from compiler_core.tools.sweep import sweeping
from compiler_core.tools.sweep.executors import RayExecutor
from compiler_core.tools.sweep.store import Store
from tests.api.light_cases import MEASURE, case
from tests.limits import HANG_S

pytestmark = [pytest.mark.sweep, pytest.mark.filterwarnings("ignore")]
ROOT = Path(__file__).parents[2]


@contextmanager
def dask_workers(folder: Path) -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client.get_executor(retries=2)


@contextmanager
def ray_workers(folder: Path) -> Iterator[Any]:
    ray = pytest.importorskip("ray")
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _temp_dir="/tmp/ray-cutaway",
             runtime_env={"env_vars": {"PYTHONPATH": str(ROOT)}}, object_store_memory=100 * 2**20)  # fmt: skip
    try:
        yield RayExecutor(num_cpus=1)
    finally:
        ray.shutdown()


@contextmanager
def ipyparallel_workers(folder: Path) -> Iterator[Any]:
    ipyparallel = pytest.importorskip("ipyparallel")
    with ipyparallel.Cluster(n=3, ipython_dir=str(folder / "ipython"), log_level=40) as client:
        client.wait_for_engines(3, timeout=HANG_S)
        yield client.executor()


@contextmanager
def submitit_workers(folder: Path) -> Iterator[Any]:
    submitit = pytest.importorskip("submitit")
    executor = submitit.AutoExecutor(folder / "submitit", cluster="local")
    executor.update_parameters(timeout_min=5)
    yield executor


@pytest.mark.parametrize("workers", [dask_workers, ray_workers, ipyparallel_workers, submitit_workers])
def test_the_rows_are_those_of_a_local_sweep(
    workers: Callable[[Path], AbstractContextManager[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeping, "MEASURE", MEASURE)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    cases = [case(str(n), value=n) for n in range(6)]
    cases += [case("killed", "kill the worker once", 3, tmp_path), case("raises", "raise"), case("last", "sleep")]
    (tmp_path / "local").mkdir()
    plain = [case(each.name, "ok", 3) if each.name == "killed" else each for each in cases]
    local = sweep(plain, tmp_path / "local" / "s.sqlite", progress=False)
    with workers(tmp_path) as executor:
        result = sweep(cases, tmp_path / "s.sqlite", executor=executor, retries=2, progress=False)
    left_out = ("seconds", "attempts", "traceback")
    tables = [[{k: v for k, v in row.items() if k not in left_out} for row in each.rows] for each in (result, local)]
    assert tables[0] == tables[1]
    assert result["killed"]["attempts"] == 2
    ended = [name for name, state in Store(tmp_path / "s.sqlite").runs() if state == "ok"]
    assert sorted(ended) == sorted(row["name"] for row in result.rows if row["state"] == "ok")
