"""Suites of the speed benchmark by name. Each returns JSON data, which `show` displays."""

from collections.abc import Callable
from typing import Any

from benchmarks.speed.clock import Log
from benchmarks.speed.commands import time_parallel_sweep, time_start_up
from benchmarks.speed.method_cost import time_fedcorr_stage1, time_methods
from benchmarks.speed.rounds import (
    time_evaluation,
    time_one_process,
    time_reference,
    time_resnet18,
    time_threads,
)
from benchmarks.speed.scaling import time_scaling

SUITES: dict[str, Callable[[int, Log], dict[str, Any]]] = {
    "reference": time_reference,
    "one_process": time_one_process,
    "resnet18": time_resnet18,
    "evaluation": time_evaluation,
    "methods": time_methods,
    "first_stage": time_fedcorr_stage1,
    "threads": time_threads,
    "growth": time_scaling,
    "grid": time_parallel_sweep,
    "start_up": time_start_up,
}
