"""The choice between compiled and eager passes (`executor.compile`)."""

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from benchmarks.config.schema import RunConfig
from benchmarks.engine.compiled import CompiledEngine
from benchmarks.engine.precision import bfloat16_engine
from methods.core.errors import UserError, invalid
from methods.core.flat_model import Engine

# Compilation takes about 2 s, once per machine, and saves about half a millisecond per step.
AUTO_COMPILE_MIN_STEPS = 2_000

CPU = torch.device("cpu")


def select_engine(
    config: RunConfig,
    client_sizes: np.ndarray,
    shape: tuple[int, ...],
    build_module: Callable[[], nn.Module],
    report: Callable[[str], None],
    device: torch.device = CPU,
) -> Engine | None:
    """Create the engine of a run. None: eager passes. The kernels are for float32 on the CPU.

    With `auto`, short runs use eager passes, and so do runs whose model cannot be compiled.
    """
    choice, train, precision = config.executor.compile, config.train, config.executor.precision
    if device.type != "cpu" or precision != "fp32":
        if choice == "on":
            where = f"with executor.device={device.type} and executor.precision={precision}"
            raise invalid("executor.compile", choice, f"auto or off {where}")
        return bfloat16_engine if precision == "bf16" else None
    steps_per_epoch = float(np.ceil(client_sizes / train.batch_size).mean())
    num_steps = config.budget.participations * train.local_epochs * steps_per_epoch
    if choice == "off" or (choice == "auto" and num_steps < AUTO_COMPILE_MIN_STEPS):
        return None
    try:
        return CompiledEngine(build_module, shape)
    except Exception as error:
        name = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
        reason = f"{name}{error}".splitlines()[0]
        if choice == "on":
            fix = "set the environment variable CXX, or executor.compile=off"
            raise UserError(f"cannot compile: {reason}; {fix}") from error
        report(f"eager passes are used: {reason}")
        return None
