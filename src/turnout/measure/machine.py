"""What this machine is and how much memory the process has used: the provenance of every figure.

Reads /proc and package metadata and nothing else; where something cannot be known it says so instead of guessing.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("onnxruntime", "onnxruntime-webgpu", "onnxruntime-gpu", "onnx", "torch", "numpy", "turnout")
"""Packages whose version can change a figure."""

SOFTWARE_DRIVERS = ("swiftshader", "swrast", "lavapipe", "lvp", "llvmpipe")
"""Parts of the names of Vulkan drivers that compute on the CPU."""


def cores() -> int:
    """CPU cores that this process may use (its affinity mask, not the machine's count)."""
    return len(os.sched_getaffinity(0))


def cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name and what it multiplies with, as far as the kernel tells."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    flags = set(fields.get("flags", "").split())
    simd = [name for name in ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8") if name in flags]
    family = f" family {fields['cpu family']}" if "cpu family" in fields else ""
    return f"{fields.get('model name', platform.machine())}{family} ({' '.join(simd) or 'no wide SIMD'})"


def hardware() -> str:
    """One line on this machine: processor, cores, memory, kernel."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{cpu_name()}, {cores()} cores, {memory_gib:.0f} GiB, Linux {platform.release().split('-')[0]}"


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that matter, where installed."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def commit(package: Path = Path(__file__).parents[1]) -> str:
    """Turnout's own commit when it runs from its repository, else ""."""
    git = package.parents[1] / ".git"
    try:
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head[:12]
        name = head.removeprefix("ref: ")
        loose = git / name
        if loose.is_file():
            return loose.read_text().strip()[:12]
        packed = (git / "packed-refs").read_text().splitlines()
    except OSError:
        return ""
    return next((line.split()[0][:12] for line in packed if line.endswith(f" {name}")), "")


def software_gpu(environ: Mapping[str, str], dev: Path = Path("/dev")) -> bool:
    """Whether a WebGPU adapter here computes on the CPU: by the driver's name, or because no GPU is in the machine."""
    drivers = environ.get("VK_ICD_FILENAMES", "") + environ.get("VK_DRIVER_FILES", "")
    if any(name in drivers.lower() for name in SOFTWARE_DRIVERS):
        return True
    return not gpu_here(dev)


def gpu_here(dev: Path = Path("/dev")) -> bool:
    """Whether the kernel shows a GPU of any vendor to this process."""
    return any(any(dev.glob(pattern)) for pattern in ("dri/render*", "nvidia[0-9]*", "dxg", "kfd"))


def reset_peak() -> bool:
    """Start a new measurement of the process's peak memory; False where the kernel does not offer it."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def memory_bytes(field: str) -> int | None:
    """Resident memory of the process: now ("VmRSS"), or its peak since `reset_peak` ("VmHWM"); None if not told."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    return None


def gpu_name(proc: Path = Path("/proc/driver/nvidia/gpus")) -> str:
    """The first NVIDIA GPU's name as its driver tells it, else "GPU of unknown name"."""
    for information in sorted(proc.glob("*/information")):
        for line in information.read_text().splitlines():
            if line.startswith("Model:"):
                return line.partition(":")[2].strip()
    return "GPU of unknown name"
