"""Faults that results on the second device do not show, each with a test of its own kind."""

import os
from collections.abc import Callable
from typing import Any

import pytest
import second_device
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.data.images import MemoryImages
from benchmarks.engine.precision import bfloat16_engine
from benchmarks.executors import SerialExecutor
from benchmarks.federation import devices
from benchmarks.federation.client import ImageSplit
from benchmarks.federation.tasks import ClientTask
from benchmarks.federation.transfer import Border, upload
from benchmarks.loop.runner import Run
from methods.core import registry
from methods.core.flat_model import FlatModel
from methods.core.task import Payload

DEVICE = torch.device("fln:0")


class Float64Recorder(TorchDispatchMode):
    """Names of the operators with a float64 result on the device, which MPS does not have."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None):
        result = function(*args, **(kwargs or {}))
        for value in result if isinstance(result, list | tuple) else [result]:
            if isinstance(value, Tensor) and value.dtype == torch.float64:
                if value.device.type == DEVICE.type:
                    self.found.add(str(function))
        return result


@pytest.mark.parametrize("method", [info.name for info in registry.list_methods()])
def test_client_tasks_have_no_float64_on_the_device(
    open_run: Callable[..., Run], method: str
) -> None:
    epochs = {"dividemix": ["method.divide_epochs=1"], "fedcnml": ["method.scoring_epochs=1"]}
    run = open_run(f"method={method}", "executor.device=auto", *epochs.get(method, []))
    with Float64Recorder() as recorder:
        while (stage := run.method.stage(run.round)) is not None:
            run.run_round(stage)
    assert run.executor.context.device == DEVICE  # type: ignore[attr-defined]
    assert recorder.found == set()
    with recorder:
        torch.ones(2, device=DEVICE).double()
    assert recorder.found == {"aten._to_copy.default"}


def layers_task(run: Run) -> ClientTask:
    payload = Payload(run.method.state.models, {})
    return ClientTask("local_update", 3, payload, run.context("train"), None, {})


def test_dropout_is_seeded_for_each_task(open_run: Callable[..., Run]) -> None:
    """The device has a generator of its own, which other work uses, too."""
    model = ["dataset=stripes", "model=cnn9", "method=fedavg"]
    overrides = ["hydra.searchpath=[pkg://example_plugin.conf]", *model, "executor.device=auto"]
    run = open_run(*overrides)
    context, task = run.executor.context, layers_task(run)  # type: ignore[attr-defined]
    first = context.execute(task).reply.models["model"]
    torch.rand(17, device=DEVICE)
    torch.rand(5)
    assert torch.equal(context.execute(task).reply.models["model"], first)
    torch.get_device_module(DEVICE).manual_seed(1)
    seed = torch.get_device_module(DEVICE).manual_seed
    context.execute(task)
    assert torch.get_device_module(DEVICE).manual_seed is seed
    other = task._replace(client_id=4)
    assert not torch.equal(context.execute(other).reply.models["model"], first)


def test_process_with_an_accelerator_does_not_fork(open_run: Callable[..., Run]) -> None:
    run = open_run("executor=processes", "executor.workers=2", "executor.device=cpu")
    assert isinstance(run.executor, SerialExecutor)


def test_question_for_devices_does_not_start_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA answers from the driver's management library only if this variable is set."""
    monkeypatch.delenv("PYTORCH_NVML_BASED_CUDA_CHECK", raising=False)
    asked = []

    def is_available() -> bool:
        asked.append(os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK"))
        return True

    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "is_available", is_available)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    assert devices.available_devices() == ["cpu", "cuda"] and asked == ["1"]
    names = {
        name: [str(device) for device in devices.resolve_devices(name)]
        for name in ("auto", "cuda", "cuda:2", "cpu")
    }
    assert names["auto"] == names["cuda"] == ["cuda:0", "cuda:1", "cuda:2"]
    assert (names["cuda:2"], names["cpu"]) == (["cuda:2"], ["cpu"])
    assert not torch.cuda.is_initialized()


@pytest.mark.parametrize(
    ("precision", "is_allowed"), [("fp32", False), ("tf32", True), ("bf16", False)]
)
def test_tf32_is_used_only_by_name(
    monkeypatch: pytest.MonkeyPatch, precision: str, is_allowed: bool
) -> None:
    for owner, name in (
        (torch.backends.cudnn, "allow_tf32"),
        (torch.backends.cuda.matmul, "allow_tf32"),
        (torch.backends.cudnn, "deterministic"),
        (torch.backends.cudnn, "benchmark"),
    ):
        monkeypatch.setattr(owner, name, not is_allowed)
    devices.set_up(DEVICE, precision)
    assert torch.backends.cudnn.allow_tf32 == torch.backends.cuda.matmul.allow_tf32 == is_allowed
    assert torch.backends.cudnn.deterministic and not torch.backends.cudnn.benchmark
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"


def test_module_moved_after_flattening_is_refused() -> None:
    model = FlatModel(nn.Linear(3, 2))
    vector = model.vector.clone()
    model.module.to(DEVICE)
    with pytest.raises(RuntimeError, match="moved after"):
        model.load(vector)


def test_bfloat16_is_used_in_training_passes_only() -> None:
    inputs: list[torch.dtype] = []

    class Recorder(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            inputs.append(x.dtype)
            return x

    module = nn.Sequential(nn.Linear(3, 4), Recorder(), nn.Linear(4, 2)).to(DEVICE)
    model, x = FlatModel(module, bfloat16_engine), torch.ones(5, 3, device=DEVICE)
    assert model.train()(x).dtype == torch.float32
    model(x).sum().backward()
    assert model.grad.dtype == model.vector.dtype == torch.float32 and model.grad.any()
    with torch.no_grad():
        assert model.eval()(x).dtype == model.train()(x).dtype == torch.float32
    assert inputs == [torch.bfloat16] * 2 + [torch.float32] * 2


def test_nondeterministic_operators_are_found() -> None:
    class Put(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.clone().put_(torch.tensor([0]), x[0, :1])

    assert devices.nondeterministic_operators(Put(), torch.ones(2, 3, requires_grad=True)) == [
        "put_"
    ]
    x = torch.ones(2, 3, requires_grad=True)
    assert devices.nondeterministic_operators(nn.Linear(3, 2), x) == []
    assert not torch.are_deterministic_algorithms_enabled()


# The border


def test_upload_is_one_transfer_of_all_types() -> None:
    tensors = [
        torch.arange(5),
        torch.tensor(True),
        torch.randn(3, 2).t(),
        torch.empty(0, 4),
        torch.tensor([1, 2, 3], dtype=torch.uint8),
        torch.tensor([False, True]),
    ]
    with second_device.counting() as counts:
        moved = upload(tensors, DEVICE)
    assert (counts.uploads, counts.launches, counts.downloads) == (1, 0, 0)
    for found, expected in zip(moved, tensors, strict=True):
        assert found.device == DEVICE and torch.equal(found.cpu(), expected)


def test_shared_payload_is_uploaded_once_and_comes_back_as_itself() -> None:
    border, vector = Border(DEVICE), torch.randn(10)
    payload = Payload({"a": vector, "b": vector}, {"level": 0.5, "list": [torch.ones(2)]})
    with second_device.counting() as counts:
        first, second = (border.to_device(payload, shared=True) for _ in range(2))
    assert counts.uploads == 1
    assert first.models["a"] is first.models["b"] is second.models["a"]
    with second_device.counting() as counts:
        back = border.to_host(second)
    assert counts.transfers == 0 and back.models["a"] is vector
    assert back.shared["level"] == 0.5 and isinstance(back, Payload)


def test_images_that_do_not_fit_stay_on_the_host(
    open_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    replies = []
    for free_bytes in (2**34, 1000):
        monkeypatch.setattr(second_device, "free_bytes", free_bytes)
        run = open_run("executor.device=auto")
        context = run.executor.context  # type: ignore[attr-defined]
        assert (context.train.on_device is not None) == (free_bytes > 1000)
        replies.append(context.execute(layers_task(run)).reply.models["model"])
    assert torch.equal(*replies)


def test_number_of_workers_shares_the_memory(digits: Any) -> None:
    split = ImageSplit(digits.train, digits.views)
    assert isinstance(digits.train, MemoryImages)
    size = digits.train.tensor.nbytes
    assert devices.place_images(split, DEVICE, 2 * size).on_device is not None
    assert devices.place_images(split, DEVICE, 2 * size - 2).on_device is None
