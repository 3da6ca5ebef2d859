"""Faults that results on the second device do not show, each with a test of its own kind."""

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import second_device
import torch
from run_helpers import learned_state
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks import executors
from benchmarks.data.images import MemoryImages
from benchmarks.engine.precision import bfloat16_engine
from benchmarks.executors import SerialExecutor
from benchmarks.federation import client, devices
from benchmarks.federation.client import ImageSplit
from benchmarks.federation.tasks import ClientTask
from benchmarks.federation.transfer import DeviceTransfer, upload
from benchmarks.loop.runner import Run
from benchmarks.models.base import ImageClassifier
from methods.core import registry
from methods.core.flat_model import FlatModel
from methods.core.task import Payload

DEVICE = "fln:0"  # not a torch.device: the tests are collected in a process without it


class Recorder(TorchDispatchMode):
    """Operators on the device that another device refuses, or that have other results there."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[tuple[str, str]] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None):
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        for value in result if isinstance(result, list | tuple) else [result]:
            if isinstance(value, Tensor):
                for fault in self.faults(function, value, args, kwargs):
                    self.found.add((str(function).removesuffix(".default"), fault))
        return result

    def faults(self, function: Any, result: Tensor, args: Any, kwargs: Any) -> Iterator[str]:
        name, is_on_device = str(function), str(result.device) == DEVICE
        if is_on_device and result.dtype == torch.float64:
            yield "float64"  # MPS has none.
        if is_on_device and name in UNSTABLE:
            yield "ties"  # CUDA orders equal values in any way.
        is_copy = name in ("aten._to_copy.default", "aten.copy_.default")
        if is_copy and not is_on_device and (kwargs.get("non_blocking") or True in args[2:]):
            yield "race"  # The host reads the copy before it is there.


UNSTABLE = {f"aten.{name}.default" for name in ("topk", "sort", "argsort", "kthvalue", "median")}


@pytest.mark.parametrize("method", [info.name for info in registry.list_methods()])
def test_client_tasks_are_safe_on_every_device(open_run: Callable[..., Run], method: str) -> None:
    epochs = {"dividemix": ["method.divide_epochs=1"], "fedcnml": ["method.scoring_epochs=1"]}
    options = ["executor.device=auto", "train.batch_size=50", *epochs.get(method, [])]
    run = open_run(f"method={method}", *options)
    with Recorder() as recorder:
        while (stage := run.method.stage(run.round)) is not None:
            run.run_round(stage)
    assert str(run.executor.context.device) == DEVICE  # type: ignore[attr-defined]
    assert recorder.found == set()


def test_faults_are_recorded() -> None:
    x = torch.ones(2, device=DEVICE)
    with Recorder() as recorder:
        x.double()
        x.topk(1), x.sort()
        x.sort(stable=True), x.cpu(), x.cpu().double().topk(1)
    assert recorder.found == {
        ("aten._to_copy", "float64"),
        ("aten.topk", "ties"),
        ("aten.sort", "ties"),
    }
    with Recorder() as recorder:
        x.to("cpu", non_blocking=True)
        torch.empty(2).copy_(x, non_blocking=True)
        torch.ones(2).pin_memory().to(DEVICE, non_blocking=True)
    assert recorder.found == {("aten._to_copy", "race"), ("aten.copy_", "race")}


class DropoutModel(ImageClassifier):
    """A linear model with dropout, for digits."""

    feature_dim = 64

    def __init__(self) -> None:
        super().__init__()
        self.dropout, self.head = nn.Dropout(0.5), nn.Linear(64, 10)

    def features(self, images: Tensor) -> Tensor:
        return self.dropout(images.flatten(1))


def execute(run: Run, client_id: int = 3, vector: Tensor | None = None) -> Tensor:
    """The vector of a client after its local update."""
    models = run.method.state.models if vector is None else {"model": vector}
    ctx = run.context("train")
    task = ClientTask("local_update", client_id, Payload(models, {}), ctx, None, {})
    context = run.executor.context  # type: ignore[attr-defined]
    result: Tensor = context.execute(task).reply.models["model"]
    return result


def test_dropout_is_seeded_for_each_task(open_run: Callable[..., Run]) -> None:
    """The device has a generator of its own, which other work uses, too."""
    run, vector = open_run("executor.device=auto"), FlatModel(DropoutModel()).vector
    run.executor.context.build_module = DropoutModel  # type: ignore[attr-defined]
    first = execute(run, vector=vector)
    for device in (DEVICE, "cpu"):
        torch.rand(17, device=device)
        assert torch.equal(execute(run, vector=vector), first)


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


def test_workers_are_dealt_to_the_devices_in_turn(
    open_run: Callable[..., Run], configure: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    context = open_run("executor.device=cpu").executor.context  # type: ignore[attr-defined]
    gpus = [torch.device("cuda", k) for k in range(3)]
    monkeypatch.setattr(executors, "resolve_devices", lambda name: gpus)
    monkeypatch.setattr(executors, "ProcessExecutor", list)
    for workers, indices, most in ((7, [0, 1, 2, 0, 1, 2, 0], 3), ("auto", [0, 1, 2], 1)):
        config = configure("executor=processes", f"executor.workers={workers}").executor
        contexts: Any = executors.make_executor(config, context)
        assert [context.device.index for context in contexts] == indices
        assert {context.workers_on_device for context in contexts} == {most}


def test_report_has_the_versions_of_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.backends.cudnn, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 91002)
    versions = devices.library_versions(torch.device("cuda:0"))
    assert versions == {"cuda": "12.8", "cudnn": "91002"}


FLAGS = [
    (torch.backends.cudnn, "allow_tf32"),
    (torch.backends.cuda.matmul, "allow_tf32"),
    (torch.backends.cudnn, "deterministic"),
    (torch.backends.cudnn, "benchmark"),
]


@pytest.fixture
def flags() -> Iterator[None]:
    """Restores the settings of CUDA."""
    before = [getattr(owner, name) for owner, name in FLAGS]
    yield
    for (owner, name), value in zip(FLAGS, before, strict=True):
        setattr(owner, name, value)


@pytest.mark.parametrize(("precision", "tf32"), [("fp32", False), ("tf32", True), ("bf16", False)])
def test_tf32_is_used_only_by_name(flags: None, precision: str, tf32: bool) -> None:
    for owner, name in FLAGS:
        setattr(owner, name, not tf32)
    devices.set_up(torch.device(DEVICE), precision)
    assert [getattr(owner, name) for owner, name in FLAGS] == [tf32, tf32, True, False]
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"


def test_module_moved_after_flattening_is_refused() -> None:
    model = FlatModel(nn.Linear(3, 2))
    vector = model.vector.clone()
    model.module.to(DEVICE)
    with pytest.raises(RuntimeError, match="moved after"):
        model.load(vector)


def test_bfloat16_is_used_in_training_passes_only() -> None:
    inputs: list[torch.dtype] = []

    class InputType(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            inputs.append(x.dtype)
            return x

    module = nn.Sequential(nn.Linear(3, 4), InputType(), nn.Linear(4, 2)).to(DEVICE)
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


# Transfers


def test_upload_is_one_transfer_of_all_types() -> None:
    tensors = [
        torch.arange(5),
        torch.tensor(True),
        torch.randn(3, 2).t(),
        torch.empty(0, 4),
        torch.from_numpy(np.concatenate([np.empty(0, np.int64)])),
        torch.tensor([1, 2, 3], dtype=torch.uint8),
        torch.tensor([False, True]),
    ]
    with second_device.counting() as counts:
        moved = upload(tensors, torch.device(DEVICE))
    assert (counts.uploads, counts.launches, counts.downloads) == (1, 0, 0)
    for found, expected in zip(moved, tensors, strict=True):
        assert str(found.device) == DEVICE and torch.equal(found.cpu(), expected)


def test_shared_payload_is_uploaded_once_and_comes_back_as_itself() -> None:
    transfer, vector = DeviceTransfer(torch.device(DEVICE)), torch.randn(10)
    payload = Payload({"a": vector, "b": vector}, {"level": 0.5, "list": [torch.ones(2)]})
    with second_device.counting() as counts:
        first, second = (transfer.to_device(payload, shared=True) for _ in range(2))
    assert counts.uploads == 1
    assert first.models["a"] is first.models["b"] is second.models["a"]
    with second_device.counting() as counts:
        back = transfer.to_host(second)
    assert counts.transfers == 0 and back.models["a"] is vector
    assert back.shared["level"] == 0.5 and isinstance(back, Payload)


@pytest.mark.parametrize("method", ["fedavg", "fedcorr", "fedlsr"])
def test_images_that_do_not_fit_stay_on_the_host(
    open_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Large clients are streamed, also in scoring (FedCorr) and for views of the host (FedLSR)."""
    results = []
    for place in ("device", "host", "stream"):
        if place == "host":
            monkeypatch.setattr(second_device, "free_bytes", 1000)
        if place == "stream":
            monkeypatch.setattr(client, "STREAM_BYTES", 1000)
            monkeypatch.setattr(client, "CHUNK_BYTES", 10_000)
            whole = property(lambda images: pytest.fail("all images were read"))
            monkeypatch.setattr(client.ClientImages, "on_host", whole)
        run = open_run(f"method={method}", "executor.device=auto")
        context = run.executor.context  # type: ignore[attr-defined]
        assert (context.train.on_device is not None) == (place == "device")
        with second_device.counting() as counts:
            run.run_round(str(run.method.stage(0)))
        results.append(learned_state(run))
    assert results[0] == results[1] == results[2]
    assert counts.uploads > 10


def test_images_of_the_next_client_are_pinned_by_another_thread(
    open_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(second_device, "free_bytes", 1000)
    run = open_run("executor.device=auto")
    read, threads = client.ImageSplit.read, []

    def recorded(split: ImageSplit, index: Tensor, device: torch.device) -> Tensor:
        images = read(split, index, device)
        assert images.is_pinned()
        threads.append(threading.current_thread() is threading.main_thread())
        return images

    monkeypatch.setattr(client.ImageSplit, "read", recorded)
    method, ids = run.method, [0, 1, 2]
    for _ in range(2):  # The first time, constants are uploaded, too.
        threads.clear()
        with second_device.counting() as counts:
            run.pool.run_task(ids, method.local_update, method.payload, run.context("train"))
    assert sorted(threads) == [False, False, True]
    assert counts.uploads == 1 + 2 * len(ids)  # payload; images and random numbers of each client


def test_number_of_workers_shares_the_memory(digits: Any) -> None:
    split = ImageSplit(digits.train, digits.views)
    assert isinstance(digits.train, MemoryImages)
    size = digits.train.tensor.nbytes
    assert devices.place_images(split, torch.device(DEVICE), 2 * size).on_device is not None
    assert devices.place_images(split, torch.device(DEVICE), 2 * size - 2).on_device is None
