"""Devices: which of them exist, how a worker uses one, and what the record says about it."""

import hashlib
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.config.schema import ExecutorConfig
from benchmarks.data.images import MemoryImages
from benchmarks.federation.client import ImageSplit
from benchmarks.federation.transfer import HOST
from methods.core.errors import invalid
from methods.core.machine import process_memory_mb

# Part of the free memory of a device that the images may take.
IMAGES_SHARE = 0.5


@cache
def arithmetic_digest() -> str:
    """Digest of the gradients of a fixed small network on the CPU.

    Processors with the same instruction set can differ in it, because the libraries for matrix
    products and convolutions choose their kernels by the model of the processor.
    """
    generator = torch.Generator().manual_seed(0)
    shapes = (10, 3, 28, 28), (6, 3, 5, 5), (16, 6, 5, 5), (120, 256), (10, 120)
    images, *weights = (torch.rand(shape, generator=generator) - 0.5 for shape in shapes)
    kernels, kernels2, matrix, matrix2 = (weight.requires_grad_() for weight in weights)
    features = functional.max_pool2d(functional.conv2d(images, kernels).relu(), 2)
    features = functional.max_pool2d(functional.conv2d(features, kernels2).relu(), 2)
    logits = functional.linear(functional.linear(features.flatten(1), matrix).relu(), matrix2)
    gradients = torch.autograd.grad(functional.cross_entropy(logits, torch.arange(10)), weights)
    content = b"".join(gradient.numpy().tobytes() for gradient in gradients)
    return hashlib.sha256(content).hexdigest()[:8]


@dataclass(frozen=True)
class DeviceReport:
    """A device as a worker sees it."""

    type: str = "cpu"
    name: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    peak_memory_mb: int = 0
    dropout_generator: str = "cpu"  # device of the generator that dropout draws from
    nondeterministic: list[str] = field(default_factory=list)  # operators of the model
    host_memory_mb: int = field(default_factory=process_memory_mb)  # peak of this process
    # Of the CPU, as torch uses it. ATEN_CPU_CAPABILITY can lower it.
    instruction_set: str = field(default_factory=torch.backends.cpu.get_cpu_capability)
    arithmetic: str = field(default_factory=arithmetic_digest)


def available_devices() -> list[str]:
    """Device types of this machine: `cpu` and the accelerator. Does not initialize CUDA."""
    # Without this, the question alone would make CUDA unusable in processes that are forked later.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None or not torch.accelerator.is_available():
        return ["cpu"]
    return ["cpu", accelerator.type]


def resolve_devices(name: str) -> list[torch.device]:
    """The devices that workers use in turn, for a value of `executor.device`."""
    known = available_devices()
    kind, _, index = name.partition(":")
    if name == "auto":
        kind = known[-1]
    if kind == "cpu":
        return [HOST]
    count = torch.get_device_module(kind).device_count() if kind in known else 0
    chosen = [int(index)] if index else list(range(count))
    if not chosen or max(chosen) >= count:
        numbered = [f"{known[-1]}:{k}" for k in range(count)] if kind in known else []
        raise invalid(
            "executor.device", name, f"a device of this machine: {', '.join(known + numbered)}"
        )
    return [torch.device(kind, k) for k in chosen]


@cache
def device_type(name: str) -> str:
    """Device type of a value of `executor.device`, also if there is no such device here."""
    return available_devices()[-1] if name == "auto" else name.partition(":")[0]


def first_device(config: ExecutorConfig) -> torch.device:
    """The device of the first worker. Raises UserError if it is missing or lacks an option.

    With Ray, each worker finds its own device. The result is then the CPU of this process.
    """
    is_remote = config.name == "ray"
    device = HOST if is_remote else resolve_devices(config.device)[0]
    if config.cuda_graph and device.type != "cuda":
        raise invalid("executor.cuda_graph", True, "false, or a CUDA device without Ray")
    may_have_gpu = is_remote and (config.resources.gpus or config.device not in ("auto", "cpu"))
    if config.precision == "tf32" and device.type != "cuda" and not may_have_gpu:
        raise invalid("executor.precision", config.precision, f"fp32 or bf16 with {device.type}")
    return device


def is_accelerator_in_use() -> bool:
    """True if this process has started an accelerator. It must not fork then."""
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None:
        return False
    module = torch.get_device_module(accelerator)
    return bool(getattr(module, "is_initialized", lambda: True)())


def set_up(device: torch.device, precision: str) -> None:
    """Select a device in this process, with deterministic operators and the given precision."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    # By default, convolutions on recent GPUs round their inputs to 10 bits (TF32).
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.accelerator.set_device_index(device.index or 0)


def place_images(split: ImageSplit, device: torch.device, free: float) -> ImageSplit:
    """A split with its images on the device, if they are in memory and fit in the free bytes."""
    images = split.images
    if not isinstance(images, MemoryImages) or images.tensor.nbytes > IMAGES_SHARE * free:
        return split
    return split._replace(on_device=images.tensor.to(device))


def free_memory(device: torch.device) -> float:
    """Free bytes of a device; infinity if it shares the memory of the host."""
    module = torch.get_device_module(device)
    return float(module.mem_get_info(device)[0]) if hasattr(module, "mem_get_info") else torch.inf


def describe(
    device: torch.device, build_module: Callable[[], nn.Module], x: Tensor
) -> DeviceReport:
    """Name, versions and peak memory of a device, and the model's nondeterministic operators."""
    module = torch.get_device_module(device)
    peak = module.max_memory_allocated(device) if hasattr(module, "max_memory_allocated") else 0
    name = module.get_device_name(device) if hasattr(module, "get_device_name") else device.type
    return DeviceReport(
        device.type,
        name,
        library_versions(device),
        peak // 2**20,
        device.type,
        nondeterministic_operators(build_module().to(device), x.to(device)),
    )


def library_versions(device: torch.device) -> dict[str, str]:
    """Versions of CUDA or ROCm, and of cuDNN."""
    versions = {"cuda": torch.version.cuda, "hip": torch.version.hip}
    if device.type == "cuda" and torch.backends.cudnn.is_available():
        versions["cudnn"] = str(torch.backends.cudnn.version())
    return {key: value for key, value in versions.items() if value is not None}


def nondeterministic_operators(module: nn.Module, x: Tensor) -> list[str]:
    """Operators of a training pass that have no deterministic form on the device."""
    before = torch.are_deterministic_algorithms_enabled()
    before_warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with warnings.catch_warnings(record=True) as caught, torch.random.fork_rng(devices=[]):
            warnings.simplefilter("always")
            torch.autograd.backward(module.train()(x).sum())
    finally:
        torch.use_deterministic_algorithms(before, warn_only=before_warn_only)
    texts = [str(warning.message) for warning in caught]
    return sorted({text.split()[0] for text in texts if "deterministic" in text})
