"""Compiled training passes equal eager passes up to rounding."""

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
from benchmarks.engine.compiled import CompiledEngine
from benchmarks.engine.functional import FunctionalModule
from methods.core.errors import UserError
from methods.core.flat_model import FlatModel

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
    return NormalizedCNN()


def images(count: int = 6, seed: int = 0) -> Tensor:
    return torch.randn(count, 1, 8, 8, generator=torch.Generator().manual_seed(seed))


def run_step(net: FlatModel, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    net.train().grad.zero_()
    output = net(x)
    (output**2).sum().backward()
    return output.detach(), net.grad.clone(), net.vector.clone()


def close(first: Any, second: Any, tolerance: float = 2e-5) -> bool:
    return all(
        torch.allclose(a, b, atol=tolerance, rtol=tolerance)
        for a, b in zip(first, second, strict=True)
    )


@pytest.mark.parametrize("submodule", ["forward", "features"])
def test_functional_forward_gives_output_gradient_and_buffers(submodule: str) -> None:
    net, functional = FlatModel(module()).train(), FunctionalModule(module(), submodule)
    weights = net.weights.clone().requires_grad_()
    output, buffers = functional.functional_forward(weights, net.buffers.clone(), images())
    (gradient,) = torch.autograd.grad((output**2).sum(), weights)
    expected = net.module_forward(submodule, images())
    (expected**2).sum().backward()
    assert (
        torch.equal(output, expected)
        and torch.equal(buffers, net.buffers)
        and not torch.equal(buffers, FlatModel(module()).buffers)
    )
    assert torch.allclose(gradient, net.grad, atol=1e-6)


@needs_compiler
def test_compiled_engine_equals_the_module_and_skips_short_batches() -> None:
    engine = CompiledEngine(module, batch_size=6)
    net, eager = FlatModel(module(), engine), FlatModel(module())
    for count in (6, 5):
        assert close(run_step(net, images(count)), run_step(eager, images(count)))
        net.load(eager.vector)
    assert [shape[0] for _, shape in engine._compiled] == [6]
    with torch.no_grad():
        assert (
            close([net.eval()(images(7))], [eager.eval()(images(7))]) and not net.is_training_pass
        )


@needs_compiler
@pytest.mark.parametrize("method", ["fedavg", "lsg"])
def test_compiled_run_equals_an_eager_run_and_is_the_same_in_all_executors(
    configure: Callable[..., RunConfig], method: str
) -> None:
    # Two rounds. Adam increases rounding errors in longer runs.
    options = (f"method={method}", "budget.participations=8", "force=true")
    plain = run_to_end(configure(*options, "train.compile=false"))
    compiled = [
        run_to_end(configure(*options, "train.compile=true", f"executor={name}"))
        for name in ("serial", "processes")
    ]
    assert learned_state(compiled[0]) == learned_state(compiled[1])
    first, second = compiled[0].method.state.models["model"], plain.method.state.models["model"]
    assert torch.allclose(first, second, atol=1e-5) and not torch.equal(first, second), (
        "the results are identical, so nothing was compiled"
    )


def test_auto_compiles_only_long_runs(
    configure: Callable[..., RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    from benchmarks.engine import compiled

    monkeypatch.setattr(compiled.CompiledEngine, "warm_up", lambda self, shape: None)
    monkeypatch.setattr(compiled.shutil, "which", lambda name: f"/usr/bin/{name}")
    sizes = np.array([500, 495])  # 50 steps per epoch for both
    config = configure(
        "train.compile=auto",
        "train.local_epochs=5",
        "train.batch_size=10",
        "budget.participations=199",
    )
    assert compiled.make_compiled_engine(config, sizes, (1, 8, 8), module) is None
    config = configure(
        "train.compile=auto",
        "train.local_epochs=5",
        "train.batch_size=10",
        "budget.participations=200",
    )
    assert compiled.make_compiled_engine(config, sizes, (1, 8, 8), module) is not None
    monkeypatch.setattr(compiled.shutil, "which", lambda name: None)
    assert compiled.make_compiled_engine(config, sizes, (1, 8, 8), module) is None
    with pytest.raises(UserError, match="cannot compile: C\\+\\+ compiler g\\+\\+ not found"):
        compiled.make_compiled_engine(configure("train.compile=true"), sizes, (1, 8, 8), module)


def test_run_id_is_independent_of_compilation(
    configure: Callable[..., RunConfig],
) -> None:
    assert configure("train.compile=true").run_id == configure("train.compile=false").run_id
    with pytest.raises(
        UserError, match="invalid train.compile='yes please': expected true, false or auto"
    ):
        configure("train.compile=yes please")


@pytest.mark.parametrize("name", ["lenet5", "cnn9", "mlp", "digits_cnn", "resnet18"])
def test_models_have_a_functional_form(name: str) -> None:
    net = FlatModel(models.build(name, 4, (3, 32, 32)))
    output, buffers = FunctionalModule(net.module, "forward").functional_forward(
        net.weights, net.buffers, torch.zeros(2, 3, 32, 32)
    )
    assert output.shape == (2, 4) and buffers.shape == net.buffers.shape


def test_missing_compiler_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from benchmarks import run

    monkeypatch.setenv("CXX", "no-such-compiler")
    assert (
        run.main(["scale=smoke", "train.compile=true", "executor=serial", f"runs_dir={tmp_path}"])
        == 2
    )
    assert capsys.readouterr().err.splitlines() == [
        "error: cannot compile: C++ compiler no-such-compiler not found; "
        "set the environment variable CXX, or train.compile=false"
    ]
