"""Training passes by other means than the module's own: compiled. The same results up to rounding."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from running import learnt, loop
from torch import Tensor, nn

from benchmarks import models
from benchmarks.config.schema import RunConfig
from benchmarks.engine.compiled import CompiledEngine
from benchmarks.engine.functional import FunctionalModule
from methods.core.errors import UserError
from methods.core.flat_model import FlatModel

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ on this machine")


class Normalised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 3)

    def features(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x)).relu().mean((2, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


def module() -> nn.Module:
    torch.manual_seed(3)
    return Normalised()


def images(count: int = 6, seed: int = 0) -> Tensor:
    return torch.randn(count, 1, 8, 8, generator=torch.Generator().manual_seed(seed))


def a_step(net: FlatModel, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    net.train().grad.zero_()
    output = net(x)
    (output**2).sum().backward()
    return output.detach(), net.grad.clone(), net.vector.clone()


def close(first: Any, second: Any, tolerance: float = 2e-5) -> bool:
    return all(
        torch.allclose(a, b, atol=tolerance, rtol=tolerance)
        for a, b in zip(first, second, strict=True)
    )


@pytest.mark.parametrize("part", ["forward", "features"])
def test_a_pure_pass_gives_output_gradient_and_batch_norm_statistics(part: str) -> None:
    net, pure = FlatModel(module()).train(), FunctionalModule(module(), part)
    weights = net.weights.clone().requires_grad_()
    output, buffers = pure.run(weights, net.buffers.clone(), images())
    (gradient,) = torch.autograd.grad((output**2).sum(), weights)
    expected = net.plain(part, images())
    (expected**2).sum().backward()
    assert (
        torch.equal(output, expected)
        and torch.equal(buffers, net.buffers)
        and not torch.equal(buffers, FlatModel(module()).buffers)
    )
    assert torch.allclose(gradient, net.grad, atol=1e-6)


@needs_compiler
def test_the_compiled_engine_equals_the_module_and_leaves_short_batches_to_it() -> None:
    engine = CompiledEngine(module, batch_size=6)
    net, plain = FlatModel(module(), engine), FlatModel(module())
    for count in (6, 5):
        assert close(a_step(net, images(count)), a_step(plain, images(count)))
        net.load(plain.vector)
    assert [shape[0] for _, shape in engine._compiled] == [6]
    with torch.no_grad():
        assert close([net.eval()(images(7))], [plain.eval()(images(7))]) and not net.learns


@needs_compiler
@pytest.mark.parametrize("method", ["fedavg", "lsg"])
def test_a_compiled_run_equals_a_plain_one_and_repeats_to_the_byte_whatever_the_executor(
    configure: Callable[..., RunConfig], method: str
) -> None:
    plain = loop(configure(f"method={method}", "train.compile=false"))
    compiled = [
        loop(configure(f"method={method}", "train.compile=true", f"executor={name}", "force=true"))
        for name in ("serial", "processes")
    ]
    assert learnt(compiled[0]) == learnt(compiled[1])
    first, second = compiled[0].method.models["model"], plain.method.models["model"]
    assert torch.allclose(first, second, atol=1e-5) and not torch.equal(first, second), (
        "equal to the last bit: was anything compiled?"
    )


def test_auto_compiles_long_runs_only(
    configure: Callable[..., RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    from benchmarks.engine import compiled

    monkeypatch.setattr(compiled.CompiledEngine, "prepare", lambda self, shape: None)
    monkeypatch.setattr(compiled.shutil, "which", lambda name: f"/usr/bin/{name}")
    sizes = np.array([500, 495])  # 50 steps an epoch for both
    config = configure(
        "train.compile=auto",
        "train.local_epochs=5",
        "train.batch_size=10",
        "budget.participations=199",
    )
    assert compiled.choose(config, sizes, (1, 8, 8), module) is None
    config = configure(
        "train.compile=auto",
        "train.local_epochs=5",
        "train.batch_size=10",
        "budget.participations=200",
    )
    assert compiled.choose(config, sizes, (1, 8, 8), module) is not None
    monkeypatch.setattr(compiled.shutil, "which", lambda name: None)
    assert compiled.choose(config, sizes, (1, 8, 8), module) is None
    with pytest.raises(UserError, match="train.compile=true needs a C\\+\\+ compiler"):
        compiled.choose(configure("train.compile=true"), sizes, (1, 8, 8), module)


def test_compiling_does_not_change_the_identity_of_a_run(
    configure: Callable[..., RunConfig],
) -> None:
    assert configure("train.compile=true").run_id == configure("train.compile=false").run_id
    with pytest.raises(
        UserError, match="train.compile='yes please' is not legal; legal: auto, true, false"
    ):
        configure("train.compile=yes please")


@pytest.mark.parametrize("name", ["lenet5", "cnn9", "mlp", "digits_cnn", "resnet18"])
def test_networks_have_a_pure_form(name: str) -> None:
    net = FlatModel(models.build(name, 4, (3, 32, 32)))
    output, buffers = FunctionalModule(net.module, "forward").run(
        net.weights, net.buffers, torch.zeros(2, 3, 32, 32)
    )
    assert output.shape == (2, 4) and buffers.shape == net.buffers.shape


def test_a_run_that_cannot_start_says_so_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from benchmarks import run

    monkeypatch.setenv("CXX", "no-such-compiler")
    assert (
        run.main(["scale=smoke", "train.compile=true", "executor=serial", f"runs_dir={tmp_path}"])
        == 2
    )
    legal = "legal here: train.compile=false, or CXX=..."
    assert capsys.readouterr().err.splitlines() == [
        f"error: train.compile=true needs a C++ compiler, and no-such-compiler is not found; {legal}"
    ]
