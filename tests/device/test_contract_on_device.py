"""The contract suite with whole runs on the second device, also of methods of other packages."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent.parent / "methods"))

from method_helpers import every_method
from run_helpers import run_to_end
from test_contract_runs import (  # noqa: F401
    Configure,
    RunMethod,
    assert_same_run,
    checked_run,
    configure,
    edge_case_partition,
    test_checkpoint_stores_all_states,
    test_client_tasks_modify_only_reply_and_client,
    test_nan_is_recorded_and_named,
    test_run_is_finite_and_within_budget,
)

from methods.core import registry


@pytest.fixture(scope="module")
def device() -> str:
    """`auto` is the second device in this process."""
    return "auto"


@every_method
def test_run_equals_that_of_the_cpu(
    info: registry.MethodInfo,
    checked_run: RunMethod,  # noqa: F811
    configure: Configure,  # noqa: F811
) -> None:
    found = checked_run(info.name)
    assert found.executor.context.device.type == "fln"  # type: ignore[attr-defined]
    on_cpu = configure(info.name, "executor.device=cpu", "executor.compile=off")
    assert_same_run(found, run_to_end(on_cpu))
