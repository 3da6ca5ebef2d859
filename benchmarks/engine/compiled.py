"""Compiled training passes (`train.compile`).

Compilation takes seconds. Steps of small models then take about half the time.

Only the forward and backward pass of a model are compiled, as functions of its flat vectors. For
small models, the custom kernels of `kernels.py` compute convolution and pooling. Losses and other
code of a method run as usual, so a method needs no changes to be compiled.

Results equal those of the eager passes up to rounding. They are identical between runs, because
only the input shape decides which passes are compiled.
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
from methods.core.flat_model import FlatModel

# Compilation takes 25 s (5 s with a filled cache) and saves about 1 ms per step.
AUTO_COMPILE_MIN_STEPS = 50_000

# See FunctionalModule.functional_forward.
CompiledForward = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]

INDUCTOR_OPTIONS = {
    "layout_optimization": False,  # channels-last copies are slower for small batches
    "fallback_random": True,  # dropout uses the same random numbers as in eager mode
    "compile_threads": 1,  # no pool of compiler processes may exist when workers are forked
    "size_asserts": False,  # CompiledEngine selects the compiled function by input shape
    "alignment_asserts": False,
}


def make_compiled_engine(
    config: RunConfig,
    client_sizes: np.ndarray,
    shape: tuple[int, ...],
    build_module: Callable[[], nn.Module],
) -> "CompiledEngine | None":
    """Create the engine that `train.compile` requires. None: eager passes."""
    if config.compile is False:
        return None
    has_compiler = shutil.which(kernels.compiler()) is not None
    train = config.train
    if config.compile == "auto":
        steps_per_epoch = float(np.ceil(client_sizes / train.batch_size).mean())
        num_steps = config.budget.participations * train.local_epochs * steps_per_epoch
        if num_steps < AUTO_COMPILE_MIN_STEPS or not has_compiler:
            return None
    elif not has_compiler:
        raise kernels.compiler_error(f"C++ compiler {kernels.compiler()} not found")
    engine = CompiledEngine(build_module, train.batch_size)
    engine.warm_up(shape)
    return engine


class CompiledEngine:
    """Compiled training passes for full batches of images.

    Other training passes, such as the last batch of an epoch, run in eager mode. Inference uses
    the custom kernels without compilation.
    """

    def __init__(self, build_module: Callable[[], nn.Module], batch_size: int):
        self._build_module, self._batch_size = build_module, batch_size
        self._compiled: dict[tuple[str, torch.Size], CompiledForward] = {}

    def __call__(self, model: FlatModel, submodule: str, x: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            with kernels.CustomKernelMode():
                return model.module_forward(submodule, x)
        is_full_batch = x.dim() == 4 and len(x) % self._batch_size == 0
        if not model.is_training_pass or not is_full_batch or x.requires_grad:
            return model.module_forward(submodule, x)
        key = (submodule, x.shape)
        if key not in self._compiled:
            module = FunctionalModule(self._build_module(), submodule)
            self._compiled[key] = compile_forward(module)
        output, buffers = self._compiled[key](model.weights_leaf, model.buffers, x)
        model.buffers.copy_(buffers)
        return output

    def warm_up(self, shape: tuple[int, ...]) -> None:
        """Compile the training step before workers are forked, so that they share the result."""
        with torch.random.fork_rng(devices=[]):
            model = FlatModel(self._build_module(), self).train()
            loss = model(torch.zeros(self._batch_size, *shape)).sum()
            torch.autograd.backward(loss)


def compile_forward(module: FunctionalModule) -> CompiledForward:
    """Compile the forward and backward pass at the first call, for the shapes of that call."""
    # These imports take seconds. The cache directory keeps compiled code between runs.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(kernels.CACHE))
    from torch._functorch.aot_autograd import aot_function
    from torch._functorch.partitioners import default_partition
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._inductor.decomposition import select_decomp_table

    def compiler(is_backward: bool) -> Callable[..., Any]:
        def compile_graph(graph: torch.fx.GraphModule, inputs: Any) -> Any:
            with config.patch(INDUCTOR_OPTIONS):
                return compile_fx_inner(graph, inputs, is_backward=is_backward)

        return compile_graph

    # The default partition stores all activations. The models are too small for recomputation.
    forward: CompiledForward = aot_function(
        module.functional_forward,
        fw_compiler=compiler(is_backward=False),
        bw_compiler=compiler(is_backward=True),
        partition_fn=default_partition,
        decompositions=kernels.with_custom_kernels(select_decomp_table()),
    )
    return forward
