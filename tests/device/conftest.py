"""Tests of this directory run in a process of their own, which has the second device."""

from pathlib import Path

import pytest
from device_process import DeviceProcess
from second_device_build import is_loaded, missing_tool

HERE = Path(__file__).parent

process: DeviceProcess | None = None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests where the device cannot be built."""
    if tool := missing_tool():
        for item in items:
            if item.path.is_relative_to(HERE):
                item.add_marker(pytest.mark.skip(reason=f"the second device needs {tool}"))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a test of this directory in the process of the device."""
    global process
    if is_loaded() or not item.path.is_relative_to(HERE):
        return None
    if item.get_closest_marker("skip"):
        return None
    if process is None:
        process = DeviceProcess(item.config.rootpath)
    hook, location = item.ihook, item.location
    hook.pytest_runtest_logstart(nodeid=item.nodeid, location=location)
    serialized, printed = process.run(item.nodeid, nextitem.nodeid if nextitem else None)
    reports = [
        hook.pytest_report_from_serializable(config=item.config, data=data) for data in serialized
    ]
    if not reports:
        reports = [pytest.TestReport(item.nodeid, location, {}, "failed", printed, "call")]
    for report in reports:
        hook.pytest_runtest_logreport(report=report)
    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=location)
    return True


def pytest_unconfigure() -> None:
    """End the process of the device."""
    if process is not None and not is_loaded():
        process.close()
