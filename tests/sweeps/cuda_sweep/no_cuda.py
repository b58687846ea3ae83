"""Pretends a CUDA device, so that fake tensors on it can be differentiated.

PyTorch's autograd gets the stream of each tensor's device, even for fake tensors.  If PyTorch has no CUDA or finds no
device, `pretend` registers a device whose streams and events do nothing.  Nothing can be allocated there.

Call it before torch is imported, in a separate process.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = """
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace c10::impl {
struct NoCuda : NoOpDeviceGuardImpl<DeviceType::CUDA> {
  static Stream stream() { return Stream(Stream::DEFAULT, Device(DeviceType::CUDA, 0)); }
  Device getDevice() const override { return Device(DeviceType::CUDA, 0); }
  Device exchangeDevice(Device) const override { return Device(DeviceType::CUDA, 0); }
  Stream getStream(Device) const noexcept override { return stream(); }
  Stream exchangeStream(Stream) const noexcept override { return stream(); }
  void record(void**, const Stream&, const DeviceIndex, const EventFlag) const override {}
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
};
C10_REGISTER_GUARD_IMPL(CUDA, NoCuda)
}

#ifdef HOOKS
namespace at {
struct CUDAHooks : CUDAHooksInterface {
  explicit CUDAHooks(CUDAHooksArgs) {}
  bool isBuilt() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
};
REGISTER_CUDA_HOOKS(CUDAHooks)
}
#endif
"""


def pretend() -> None:
    """Registers the device unless PyTorch has one."""
    assert "torch" not in sys.modules, "PyTorch asks once, when it is imported, whether it has CUDA"
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.submodule_search_locations
    torch = Path(next(iter(spec.submodule_search_locations)))
    if not (torch / "lib" / "libtorch_cuda.so").exists():
        ctypes.CDLL(str(_library(torch, "-DHOOKS")), ctypes.RTLD_GLOBAL)
        return
    from torch import cuda  # its own hooks are there

    if not cuda.is_available():
        ctypes.CDLL(str(_library(torch)), ctypes.RTLD_GLOBAL)


def _library(torch: Path, *flags: str) -> Path:
    key = hashlib.sha256("\0".join([SOURCE, *flags, (torch / "version.py").read_text()]).encode()).hexdigest()
    folder = Path(__file__).parents[3] / "build" / "no_cuda"
    path = folder / f"{key[:16]}.so"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        source, result = folder / f"{key[:16]}.{os.getpid()}.cpp", folder / f"{key[:16]}.{os.getpid()}.so"
        source.write_text(SOURCE)
        compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++") or "c++"
        command = [
            compiler,
            "-std=c++20",
            "-shared",
            "-fPIC",
            "-O0",
            "-w",
            *flags,
            f"-I{torch / 'include'}",
            str(source),
        ]
        command += ["-o", str(result), f"-L{torch / 'lib'}", "-lc10", "-ltorch_cpu", f"-Wl,-rpath,{torch / 'lib'}"]
        subprocess.run(command, check=True)
        result.replace(path)
        source.unlink()
    return path
