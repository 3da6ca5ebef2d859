"""Process in which the tests of this directory run.

The device is not loaded into the process of the other tests. Autograd starts its device threads
once per process, at the first backward pass, and a process that has them must not fork.
"""

import contextlib
import io
import multiprocessing
import os
import sys
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from second_device_build import AUTOLOAD, HERE


class DeviceProcess:
    """Spawned process that runs tests and returns their reports."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.start()

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, remote = context.Pipe()
        self.process = context.Process(target=serve, args=(remote, self.root))
        self.process.start()
        remote.close()

    def run(self, test: str, next_test: str | None) -> tuple[list[dict[str, Any]], str]:
        """Serialized reports of a test. If there are none, the text that says why.

        Fixtures that the next test shares stay alive. A process that a test has ended starts again,
        also if that test ran in another process: an interrupted command kills its child processes.
        """
        if not self.process.is_alive():
            self.start()
        try:
            self.connection.send((test, next_test))
            reports, text = self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            reports, text = [], f"the process ended with exit code {self.process.exitcode}"
            self.start()
        return reports, text

    def close(self) -> None:
        """Let the process end."""
        self.connection.close()
        self.process.join()


class Server:
    """Plugin of pytest that runs the tests it receives instead of all tests."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.reports: list[pytest.TestReport] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.reports.append(report)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        hook = session.config.hook
        while True:
            try:
                test, next_test = self.connection.recv()
            except EOFError:
                return True
            self.reports.clear()
            if test in items:
                hook.pytest_runtest_protocol(item=items[test], nextitem=items.get(next_test))
            serialized = [
                hook.pytest_report_to_serializable(config=session.config, report=report)
                for report in self.reports
            ]
            self.connection.send((serialized, f"{test} is not among the tests of {HERE}"))


def serve(connection: Connection, root: Path) -> None:
    """Run tests until the connection is closed."""
    paths = [str(AUTOLOAD), str(HERE)]
    sys.path[:0] = paths
    # Processes that tests start load the device as well.
    os.environ["PYTHONPATH"] = os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")])
    os.chdir(root)
    arguments = ["-p", "no:xdist", "-p", "no:cacheprovider", "-o", "addopts=", str(HERE)]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            import torch  # noqa: F401 (compiles the device at the first time)

            pytest.main(arguments, plugins=[Server(connection)])
            text = printed.getvalue()
        except RuntimeError:
            text = traceback.format_exc()
    # The loop above ends with the connection, unless the device or the tests cannot be loaded.
    with contextlib.suppress(EOFError, OSError):
        while connection.recv():
            connection.send(([], text))
