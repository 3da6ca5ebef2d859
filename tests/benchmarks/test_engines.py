"""Compiled passes equal eager passes up to rounding."""

import copy
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from run_helpers import learned_state, run_to_end
from torch import Tensor, nn

from benchmarks import models
from benchmarks.config.schema import RunConfig
from benchmarks.engine import selection
from benchmarks.engine.compiled import CompiledEngine
from benchmarks.engine.functional import FunctionalModule
from benchmarks.engine.selection import select_engine
from benchmarks.records.files import LOG_FILE
from methods.core.errors import UserError
from methods.core.flat_model import FlatModel
from methods.toolkit import native

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ on this machine")


class NormalizedCNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 3)

    def features(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x)).relu().mean((2, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


def module() -> nn.Module:
    torch.manual_seed(3)
    return models.build("lenet5", 10, (3, 16, 18))


def images(count: int, seed: int = 0) -> Tensor:
    return torch.randn(count, 3, 16, 18, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", ["lenet5", "mlp", "digits_cnn"])
@pytest.mark.parametrize("submodule", ["forward", "features"])
def test_functional_form_has_output_and_gradient_of_the_module(name: str, submodule: str) -> None:
    functional = FunctionalModule(models.build(name, 4, (3, 16, 18)), submodule)
    net, x = FlatModel(copy.deepcopy(functional.inner)).train(), images(6)
    weights = net.weights.clone().requires_grad_()
    output = functional.functional_forward(weights, x)
    (gradient,) = torch.autograd.grad((output**2).sum(), weights)
    expected = net.module_forward(submodule, x)
    (expected**2).sum().backward()
    assert torch.equal(output, expected) and torch.allclose(gradient, net.grad, atol=1e-6)


@needs_compiler
def test_output_of_an_image_is_independent_of_its_batch() -> None:
    net = FlatModel(module(), CompiledEngine(module, (3, 16, 18)))
    together = net(images(7)).detach()
    with torch.no_grad():
        assert torch.equal(together, torch.cat([net(image[None]) for image in images(7)]))


@needs_compiler
def test_head_of_features_has_the_gradients_of_the_module() -> None:
    """A loss of features and logits, as in RoFL, on a channels-last batch."""
    gradients = []
    for engine in (None, CompiledEngine(module, (3, 16, 18))):
        net = FlatModel(module(), engine)
        features = net.features(images(5).to(memory_format=torch.channels_last))
        (net.head(features).square().sum() + features.exp().sum()).backward()
        gradients.append(net.grad.clone())
    assert torch.allclose(*gradients, rtol=1e-4, atol=1e-5) and gradients[0].abs().min() < 1e-3


@needs_compiler
def test_gradients_can_be_differentiated() -> None:
    """The gradient of the squared norm of a gradient."""
    results = []
    for engine in (None, CompiledEngine(module, (3, 16, 18))):
        net, x = FlatModel(module(), engine), images(4).requires_grad_()
        (gradient,) = torch.autograd.grad(net(x).square().sum(), x, create_graph=True)
        gradient.square().sum().backward()
        results.append(net.grad.clone())
    assert torch.allclose(*results, rtol=1e-4, atol=1e-5) and results[0].abs().max() > 1e-3


@needs_compiler
@pytest.mark.parametrize(
    "x",
    [
        torch.zeros(0, 3, 16, 18),
        images(2).double(),
        images(2)[:, :2],
        images(2)[:, :, :9],
        images(2)[0],
        torch.zeros(2, 3, 16, 18, device="meta"),
    ],
)
def test_other_inputs_are_left_to_the_module(x: Tensor) -> None:
    """It accepts them or raises the error of torch."""
    outcomes = []
    for engine in (None, CompiledEngine(module, (3, 16, 18))):
        try:
            outcomes.append(str(FlatModel(module(), engine)(x).shape))
        except RuntimeError as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]


@needs_compiler
def test_weights_of_another_type_are_left_to_the_module() -> None:
    net = FlatModel(module().double(), CompiledEngine(module, (3, 16, 18)))
    with torch.no_grad(), pytest.raises(RuntimeError, match="same"):
        net(images(2))
    assert net(images(2).double()).dtype == torch.float64


@needs_compiler
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs the memory of /proc")
def test_lack_of_memory_is_an_error() -> None:
    """The kernel copies 200 MB, as 10,001 is a multiple of no vector length."""
    net = FlatModel(nn.Linear(10_001, 1), CompiledEngine(lambda: nn.Linear(10_001, 1), (10_001,)))
    x = torch.empty(5000, 10_001)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**26, limits[1]))
    try:
        with torch.no_grad(), pytest.raises(MemoryError, match="not enough memory for a training"):
            net(x)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert net(x[:1]).shape == (1, 1)


@needs_compiler
@pytest.mark.parametrize("method", ["fedavg", "lsg"])
def test_compiled_run_equals_an_eager_run_and_is_the_same_in_all_executors(
    configure: Callable[..., RunConfig], method: str
) -> None:
    # Two rounds. Adam increases rounding errors in longer runs.
    options = (f"method={method}", "budget.participations=8", "force=true")
    plain = run_to_end(configure(*options, "executor.compile=off"))
    compiled = [
        run_to_end(configure(*options, "executor.compile=on", f"executor={name}"))
        for name in ("serial", "processes")
    ]
    assert learned_state(compiled[0]) == learned_state(compiled[1])
    first, second = compiled[0].method.state.models["model"], plain.method.state.models["model"]
    assert torch.allclose(first, second, atol=1e-5) and not torch.equal(first, second), (
        "the results are identical, so nothing was compiled"
    )


@needs_compiler
@pytest.mark.parametrize(("participations", "is_compiled"), [(7, False), (8, True)])
def test_auto_compiles_only_long_runs(
    configure: Callable[..., RunConfig], participations: int, is_compiled: bool
) -> None:
    sizes = np.array([500, 495])  # 50 steps per epoch for both
    options = ("train.local_epochs=5", "train.batch_size=10")
    config = configure(*options, f"budget.participations={participations}")
    engine = select_engine(config, sizes, (3, 16, 18), module, pytest.fail)
    assert (engine is not None) == is_compiled


@pytest.mark.parametrize("compiler", ["no-such-compiler", "false"])
def test_auto_falls_back_to_eager_passes_with_one_line(
    run_small: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch, compiler: str
) -> None:
    monkeypatch.setenv("CXX", compiler)
    monkeypatch.setattr(selection, "AUTO_COMPILE_MIN_STEPS", 0)
    native.load_library.cache_clear()
    record = run_small("budget.participations=4")
    assert record["status"] == "done" and record["time"]["compiled"] is False
    (line,) = (line for line in record["lines"] if "eager" in line)
    assert line.startswith("eager passes are used: ")
    assert line in (record["run_dir"] / LOG_FILE).read_text()


@needs_compiler
def test_model_without_kernels_uses_eager_passes(
    configure: Callable[..., RunConfig],
) -> None:
    lines: list[str] = []
    config = configure("budget.participations=1000000")
    arguments = (np.array([500]), (1, 8, 8), NormalizedCNN)
    assert select_engine(config, *arguments, lines.append) is None
    assert lines == ["eager passes are used: the model has buffers, for which there are no kernels"]
    with pytest.raises(UserError, match="cannot compile: the model has buffers"):
        select_engine(configure("executor.compile=on"), *arguments, lines.append)


def test_run_id_is_independent_of_compilation(configure: Callable[..., RunConfig]) -> None:
    assert configure("executor.compile=on").run_id == configure("executor.compile=off").run_id


def test_missing_compiler_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from benchmarks import run

    monkeypatch.setenv("CXX", "no-such-compiler")
    native.load_library.cache_clear()
    assert (
        run.main(["scale=smoke", "executor.compile=on", "executor=serial", f"runs_dir={tmp_path}"])
        == 2
    )
    assert capsys.readouterr().err.splitlines() == [
        "error: cannot compile: C++ compiler no-such-compiler not found; "
        "set the environment variable CXX, or executor.compile=off"
    ]
