"""Training steps as CUDA graphs, without CUDA: a recording of the operators stands for a graph."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from run_helpers import to_comparable
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.config.sweep import PlannedRun
from benchmarks.loop.preflight import validate_runs
from benchmarks.loop.runner import Run
from methods.core import registry
from methods.core.errors import UserError

IDS = [0, 3]
STATIC = [info.name for info in registry.list_methods() if info.static_step]


def tensors_of(value: Any) -> list[Tensor]:
    values = value if isinstance(value, (list, tuple)) else [value]
    return [entry for entry in values if isinstance(entry, Tensor)]


class Recording(TorchDispatchMode):
    """As a CUDA graph: always the same operators on the same memory. Recording changes nothing."""

    made: list["Recording"] = []

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, Any]] = []
        self.before: list[tuple[Tensor, Tensor]] = []
        self.replays = 0
        self.made.append(self)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None):
        kwargs = kwargs or {}
        parameters = function._schema.arguments
        given = dict(zip((p.name for p in parameters), args, strict=False)) | kwargs
        written = [p.name for p in parameters if p.alias_info and p.alias_info.is_write]
        for tensor in (t for name in written for t in tensors_of(given[name])):
            self.before.append((tensor, tensor.clone()))
        result = function(*args, **kwargs)
        self.calls.append((function, args, kwargs, result))
        return result

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for tensor, before in reversed(self.before):
            tensor.copy_(before)
        self.before.clear()

    @torch.no_grad()
    def replay(self) -> None:
        self.replays += 1
        for function, args, kwargs, result in self.calls:
            again = function(*args, **kwargs)
            for old, new in zip(tensors_of(result), tensors_of(again), strict=True):
                if old.data_ptr() != new.data_ptr():
                    old.copy_(new)


class Stream:
    def wait_stream(self, stream: "Stream") -> None:
        assert isinstance(stream, Stream)


def train(run: Run) -> Any:
    """The replies of some clients."""
    method, ctx = run.method, run.context("train")
    return to_comparable(run.pool.run_task(IDS, method.local_update, method.payload, ctx))


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Recording]:
    monkeypatch.setattr(Recording, "made", [])
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Recording)
    monkeypatch.setattr(torch.cuda, "graph", lambda graph: graph)
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", contextlib.nullcontext)
    return Recording.made


@pytest.mark.parametrize("method", STATIC)
def test_graph_gives_the_bytes_of_single_operators(
    open_run: Callable[..., Run], recorded: list[Recording], method: str
) -> None:
    """A graph replays all whole batches of an epoch, except the first one."""
    results = []
    for uses_graph in (False, True):
        options = ["train.local_epochs=2", "train.batch_size=11", "train.momentum=0.5"]
        run = open_run(f"method={method}", "executor=serial", *options)
        run.executor.context.uses_cuda_graph = uses_graph  # type: ignore[attr-defined]
        results.append(train(run))
        assert bool(recorded) == uses_graph
    assert results[0] == results[1]
    sizes = [len(run.scenario.client_indices[k]) for k in IDS]
    assert any(size % run.config.train.batch_size for size in sizes)
    replays = [size // run.config.train.batch_size - 1 for size in sizes for _ in range(2)]
    assert [graph.replays for graph in recorded] == replays


def test_adam_has_no_graph(open_run: Callable[..., Run], recorded: list[Recording]) -> None:
    """Its step number is a Python number."""
    run = open_run("executor=serial", "train.optimizer=adam")
    run.executor.context.uses_cuda_graph = True  # type: ignore[attr-defined]
    train(run)
    assert not recorded


def test_methods_whose_steps_differ_are_not_static() -> None:
    assert {"fedavg", "fedprox", "feddyn"} <= set(STATIC)
    assert not {"fedcorr", "lsg", "jointopt", "fedlsr", "coteaching", "dividemix"} & set(STATIC)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["executor.device=cpu"], "false, or a CUDA device without Ray"),
        (["executor=ray"], "false, or a CUDA device without Ray"),
        (["method=lsg"], "false with method=lsg"),
    ],
)
def test_graph_that_is_not_possible_is_one_line(
    configure: Callable[..., Any], overrides: list[str], expected: str
) -> None:
    config = configure("executor.cuda_graph=true", *overrides)
    with pytest.raises(UserError) as error:
        validate_runs([PlannedRun([], config)])
    assert str(error.value) == f"invalid executor.cuda_graph=true: expected {expected}"
