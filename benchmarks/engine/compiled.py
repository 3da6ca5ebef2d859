"""Training passes as machine code (`train.compile`): after some seconds of compilation a small network's steps take about half the time.

Only a network's forward and backward pass are compiled, as functions of its flat vectors; what the compiler can only hand on to a library, convolution
and pooling, is done by kernels of our own where the network is small (kernels.py). Losses, random draws and whatever else a method does around them
stay plain Python, so every method gains, third-party ones included, and none has to be written in a special way. Results equal those of the plain
passes up to rounding, and are the same bytes from run to run: which passes are compiled depends on their shape alone.
"""

import os
import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.config.schema import RunConfig
from benchmarks.engine import kernels
from benchmarks.engine.functional import FunctionalModule
from methods.core.errors import UserError
from methods.core.flat_model import FlatModel

AUTO_COMPILE_MIN_STEPS = 50_000  # steps of a run from which compilation (25 s the first time, then 5 s) is repaid by the steps (a millisecond less each)

Passes = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]  # see methods.network.Pure.run


def choose(
    config: RunConfig,
    client_sizes: np.ndarray,
    shape: tuple[int, ...],
    build_module: Callable[[], nn.Module],
) -> "CompiledEngine | None":
    """The engine that `train.compile` asks for, ready; None: the networks' own passes."""
    train = config.train
    steps = (
        config.budget.participations
        * train.local_epochs
        * float(np.ceil(client_sizes / train.batch_size).mean())
    )
    there = shutil.which(kernels.compiler()) is not None
    if config.compile is True and not there:
        raise UserError(
            f"train.compile=true needs a C++ compiler, and {kernels.compiler()} is not found; legal here: train.compile=false, or CXX=..."
        )
    if not (
        config.compile is True
        or (config.compile == "auto" and steps >= AUTO_COMPILE_MIN_STEPS and there)
    ):
        return None
    engine = CompiledEngine(build_module, train.batch_size)
    engine.prepare(shape)
    return engine


class CompiledEngine:
    """Computes training passes of whole batches of images; an epoch's short last batch, and anything else, is left to the module.

    Passes that score or test, in batches of hundreds, need no compiler, only the kernels.
    """

    def __init__(self, build_module: Callable[[], nn.Module], batch_size: int):
        self._build_module, self._batch_size = build_module, batch_size
        self._compiled: dict[tuple[str, torch.Size], Passes] = {}

    def __call__(self, net: FlatModel, part: str, x: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            with kernels.CustomKernelMode():
                return net.module_forward(part, x)
        if not net.is_training_pass or x.dim() != 4 or len(x) % self._batch_size or x.requires_grad:
            return net.module_forward(part, x)
        key = (part, x.shape)
        if key not in self._compiled:
            self._compiled[key] = compile_passes(FunctionalModule(self._build_module(), part))
        output, buffers = self._compiled[key](net.weights_leaf, net.buffers, x)
        net.buffers.copy_(buffers)
        return output

    def prepare(self, shape: tuple[int, ...]) -> None:
        """Compile what nearly every step needs before workers are forked, so that they find it done."""
        with torch.random.fork_rng(devices=[]):
            net = FlatModel(self._build_module(), self).train()
            net(torch.zeros(self._batch_size, *shape)).sum().backward()


def compile_passes(pure: FunctionalModule) -> Passes:
    """Compiled at the first call, for the shapes of that call."""
    # Some seconds of imports that other runs need not spend; the cache of compiled code outlives the machine's /tmp.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(kernels.CACHE))
    from torch._functorch.aot_autograd import aot_function
    from torch._functorch.partitioners import default_partition
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._inductor.decomposition import select_decomp_table

    # Channels-last copies cost more than they bring for small batches; dropout draws what the plain network draws;
    # and no pool of compiling processes may be alive when workers are forked.
    # What is compiled is found by its shapes (CompiledEngine), so they need no check at every call.
    settings = {
        "layout_optimization": False,
        "fallback_random": True,
        "compile_threads": 1,
        "size_asserts": False,
        "alignment_asserts": False,
    }

    def compiler(backward: bool) -> Callable[..., Any]:
        def compile_graph(graph: torch.fx.GraphModule, inputs: Any) -> Any:
            with config.patch(settings):
                return compile_fx_inner(graph, inputs, is_backward=backward)

        return compile_graph

    # What the forward pass computed is kept, not computed again: memory is no concern at these sizes.
    return aot_function(
        pure.run,
        fw_compiler=compiler(backward=False),
        bw_compiler=compiler(backward=True),
        partition_fn=default_partition,
        decompositions=kernels.added_to(select_decomp_table()),
    )
