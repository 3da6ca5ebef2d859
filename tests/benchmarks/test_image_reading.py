"""Image files are read once per participation and ahead of their use; large clients in chunks."""

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from benchmarks.data.images import FileImages
from benchmarks.executors import ProcessExecutor
from benchmarks.federation import client
from benchmarks.federation.tasks import Executor
from benchmarks.federation.worker import WorkerContext
from benchmarks.loop.runner import Run

IDS = [1, 2, 5, 6, 7]
EPOCHS = 3


class Fetch(NamedTuple):
    """One call of `fetch`, in any process."""

    process: int
    in_main_thread: bool
    samples: list[int]


class LoggedFiles(FileImages):
    """Gray image files that log each call of `fetch`."""

    reads_ahead_first = 0  # a main thread waits until other threads have begun so many fetches

    def __init__(self, directory: Path, count: int, size: int):
        names = [f"{number}.png" for number in range(count)]
        super().__init__(directory, names, (1, size, size), size, keep_aspect=False)
        self.log = directory / "log"

    def fetch(self, index: Tensor) -> Tensor:
        is_main = threading.current_thread() is threading.main_thread()
        while is_main and self.count_reads_ahead() < self.reads_ahead_first:
            time.sleep(0.01)
        with open(self.log, "a") as log:
            log.write(json.dumps(Fetch(os.getpid(), is_main, index.tolist())) + "\n")
        return super().fetch(index)[:, :1]

    def count_reads_ahead(self) -> int:
        return sum(not fetch.in_main_thread for fetch in self.read_log())

    def read_log(self) -> list[Fetch]:
        if not self.log.exists():
            return []
        return [Fetch(*json.loads(line)) for line in self.log.read_text().splitlines()]


@pytest.fixture
def run(open_run: Callable[..., Run]) -> Run:
    return open_run(f"train.local_epochs={EPOCHS}", "executor=serial")


@pytest.fixture
def files(run: Run, tmp_path: Path) -> LoggedFiles:
    """The training images of the run as files."""
    images = run.dataset.train
    for number, pixels in enumerate(images.fetch(torch.arange(len(images)))):
        Image.fromarray(pixels[0].numpy()).convert("RGB").save(tmp_path / f"{number}.png")
    return LoggedFiles(tmp_path, len(images), images.shape[1])


def train(run: Run, executor: Executor | None = None) -> list[Tensor]:
    """The models of some clients after a local update."""
    run.pool.executor = executor or run.executor
    replies = run.pool.run_task(IDS, run.method.local_update, run.method.payload, run.context(""))
    return [reply.models["model"] for reply in replies]


def use_files(run: Run, files: LoggedFiles) -> WorkerContext:
    context: WorkerContext = run.executor.context  # type: ignore[attr-defined]
    context.train = context.train._replace(images=files)
    context.start()
    return context


def samples_of(run: Run) -> list[list[int]]:
    return [run.scenario.client_indices[k].tolist() for k in IDS]


def assert_equal(found: list[Tensor], expected: list[Tensor]) -> None:
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_files_of_the_next_client_are_read_while_this_one_trains(
    run: Run, files: LoggedFiles
) -> None:
    expected = train(run)
    use_files(run, files)
    assert_equal(train(run), expected)
    log = files.read_log()
    assert sorted(fetch.samples for fetch in log) == sorted(samples_of(run))
    assert [fetch.samples for fetch in log if fetch.in_main_thread] == samples_of(run)[:1]


def test_several_workers_read_ahead(run: Run, files: LoggedFiles) -> None:
    """A worker that is free at the end can take a client whose files another one has read."""
    expected = train(run)
    files.reads_ahead_first = 2
    context = use_files(run, files)
    executor = ProcessExecutor([context, context])
    try:
        assert_equal(train(run, executor), expected)
    finally:
        executor.close()
    log = files.read_log()
    tasks = [samples_of(run).index(fetch.samples) for fetch in log]
    assert set(tasks) == set(range(len(IDS))) and len(log) <= len(IDS) + 1
    in_main = [task for task, fetch in zip(tasks, log, strict=True) if fetch.in_main_thread]
    assert sorted(tasks[:2]) == [2, 3] and {0, 1} <= set(in_main)
    assert not any(fetch.in_main_thread for fetch in log[:2])
    assert len({fetch.process for fetch in log[:2]}) == 2


@pytest.mark.parametrize("method", ["fedavg", "fedlsr"])
def test_large_clients_are_read_in_chunks(
    open_run: Callable[..., Run], method: str, run: Run, files: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Again in each epoch, by another thread, also for a view that is made on the host."""
    run = open_run(f"method={method}", f"train.local_epochs={EPOCHS}", "executor=serial")
    size = run.config.train.batch_size
    expected = train(run)
    use_files(run, files)
    monkeypatch.setattr(client, "STREAM_BYTES", 0)
    monkeypatch.setattr(client, "CHUNK_BYTES", 4 * 8 * 8 * 2 * size)
    monkeypatch.setattr(client.ClientImages, "on_host", property(lambda self: pytest.fail("read")))
    assert_equal(train(run), expected)
    log = files.read_log()
    assert not any(fetch.in_main_thread for fetch in log)
    assert max(len(fetch.samples) for fetch in log) == 2 * size
    read = np.concatenate([fetch.samples for fetch in log])
    assert sorted(read) == sorted(np.repeat(np.concatenate(samples_of(run)), EPOCHS))
