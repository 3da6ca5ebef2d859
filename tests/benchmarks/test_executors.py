"""Executors: results do not depend on the executor, and worker failures are reported."""

import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
from run_helpers import SilentTracker, drop_seconds, learned_state, run_to_end, to_comparable

from benchmarks.config.compose import compose_run
from benchmarks.config.schema import RunConfig
from benchmarks.executors import ProcessExecutor, WorkerError
from benchmarks.executors.serialization import Exchange, is_independent
from benchmarks.federation.tasks import PredictionTask
from benchmarks.federation.worker import EVAL_BATCH_SIZE, WorkerContext
from benchmarks.loop.runner import Run, execute_run
from methods.core.contract import DivergenceError, TaskFunction
from methods.core.task import LocalTask, Payload, Reply
from methods.fedavg import FedAvg


class FaultyMethod(FedAvg):
    """FedAvg with client tasks that go wrong."""

    name = "faulty"

    def fails(self, task: LocalTask) -> Reply:
        if task.client.id == 3:
            raise ZeroDivisionError("no samples left")
        return task.client.reply({}, id=task.client.id)

    def diverges(self, task: LocalTask) -> Reply:
        raise DivergenceError("round 0 (train): client 3 diverged")

    def returns_a_lambda(self, task: LocalTask) -> Reply:
        return task.client.reply({}, function=lambda: None)

    def dies(self, task: LocalTask) -> Reply:
        """Kills its worker as often as the payload says, counted in a file."""
        file, deaths = task.payload.shared["file"], task.payload.shared["deaths"]
        with open(file, "a") as log:
            log.write(f"{task.client.id}\n")
        if task.client.id == 3 and Path(file).read_text().split().count("3") <= deaths:
            os.kill(os.getpid(), signal.SIGKILL)
        return task.client.reply({}, id=task.client.id)

    def has_little_memory(self, task: LocalTask) -> Reply:
        limits = resource.getrlimit(resource.RLIMIT_AS)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 2**24, limits[1]))
        try:
            return task.client.reply({"model": torch.ones(2**26)})
        finally:
            resource.setrlimit(resource.RLIMIT_AS, limits)

    def keeps(self, task: LocalTask) -> Reply:
        assert "kept" not in task.client.state or task.client.state["kept"].sum() == 10_000
        task.client.state["kept"] = task.payload.models["model"]
        return task.client.reply({}, total=float(task.payload.models["model"].sum()))

    def sleeps(self, task: LocalTask) -> Reply:
        time.sleep(0.3 if task.client.id == 0 else 0)
        return task.client.reply({}, id=task.client.id, process=os.getpid())


FAULTY = FaultyMethod(None)


def worker_context(run: Run) -> WorkerContext:
    context: WorkerContext = run.executor.context  # type: ignore[attr-defined]
    return context


@pytest.fixture
def faulty(open_run: Callable[..., Run]) -> Iterator[Run]:
    """A run on two worker processes with FaultyMethod on the client side."""
    run = open_run("executor=serial")
    context = worker_context(run)
    context.method = FaultyMethod(run.method.params)
    executor = ProcessExecutor([context] * 2)
    run.executor = run.pool.executor = executor
    yield run
    executor.close()
    assert not any(worker.process.is_alive() for worker in executor._pool)


def run_task(run: Run, task: TaskFunction, ids: list[int]) -> list[Reply]:
    return run.pool.run_task(ids, task, lambda k, ctx: Payload({}, {}), run.context("train"))


def test_replies_are_in_the_order_of_the_clients(faulty: Run) -> None:
    replies = run_task(faulty, FAULTY.sleeps, [0, 5, 2, 7, 1])
    assert [reply.values["id"] for reply in replies] == [0, 5, 2, 7, 1]
    assert [reply.client_id for reply in replies] == [0, 5, 2, 7, 1]
    assert len({reply.values["process"] for reply in replies} - {os.getpid()}) == 2


def test_worker_error_has_its_traceback_and_workers_stay_usable(faulty: Run) -> None:
    for _ in range(2):
        with pytest.raises(WorkerError) as caught:
            run_task(faulty, FAULTY.fails, [0, 1, 2, 3, 4, 5, 6, 7])
        first, *others = str(caught.value).splitlines()
        assert first == "ZeroDivisionError: no samples left"
        assert any("in fails" in line for line in others)
    replies = run_task(faulty, FAULTY.fails, [4, 5])
    assert [reply.values["id"] for reply in replies] == [4, 5]


def test_divergence_in_a_worker_is_a_divergence_error(faulty: Run) -> None:
    with pytest.raises(DivergenceError, match=r"round 0 \(train\): client 3 diverged"):
        run_task(faulty, FAULTY.diverges, [3, 4])


def test_reply_that_cannot_be_pickled_is_reported(faulty: Run) -> None:
    with pytest.raises(WorkerError, match="lambda"):
        run_task(faulty, FAULTY.returns_a_lambda, [3])
    assert len(run_task(faulty, FAULTY.fails, [4])) == 1


def run_dying_task(run: Run, file: Path, deaths: int) -> list[Reply]:
    payload = Payload({}, {"file": str(file), "deaths": deaths})
    return run.pool.run_task(
        list(range(8)), FAULTY.dies, lambda k, ctx: payload, run.context("train")
    )


def test_dead_worker_is_replaced_and_its_task_repeated(faulty: Run, tmp_path: Path) -> None:
    for name, deaths in (("first", 1), ("second", 3)):
        replies = run_dying_task(faulty, tmp_path / name, deaths)
        assert [reply.values["id"] for reply in replies] == list(range(8))
        calls = (tmp_path / name).read_text().split()
        assert calls.count("3") == deaths + 1 and len(calls) == 8 + deaths
    assert len(faulty.executor._pool) == 2  # type: ignore[attr-defined]


def test_task_that_kills_every_worker_names_its_client(faulty: Run, tmp_path: Path) -> None:
    message = (
        r"^the worker of client 3 died 4 times, with exit code -9 \(killed or out of memory\)$"
    )
    with pytest.raises(WorkerError, match=message):
        run_dying_task(faulty, tmp_path / "calls", 100)


def test_idle_workers_that_died_are_replaced(faulty: Run) -> None:
    for worker in faulty.executor._pool:  # type: ignore[attr-defined]
        worker.process.kill()
        worker.process.join()
    assert len(run_task(faulty, FAULTY.fails, [4, 5])) == 2


def test_worker_without_memory_is_named(faulty: Run) -> None:
    with pytest.raises(WorkerError, match="allocate memory|MemoryError|bad_alloc"):
        run_task(faulty, FAULTY.has_little_memory, [1])
    assert len(run_task(faulty, FAULTY.fails, [4])) == 1


def test_killed_workers_do_not_change_results(
    configure: Callable[..., RunConfig], serial_results: list[object]
) -> None:
    """In each round a worker is killed while the others train."""

    def kill_workers(run: Run) -> None:
        run_task = run.pool.run_task

        def killing(*arguments: Any, **options: Any) -> list[Reply]:
            workers = run.executor._pool  # type: ignore[attr-defined]
            threading.Timer(0.02, workers[0].process.kill).start()
            return run_task(*arguments, **options)

        run.pool.run_task = killing  # type: ignore[method-assign]

    options = ["executor=processes", "executor.workers=2"]
    run = run_to_end(configure("method=lsg", "budget.participations=8", *options), kill_workers)
    assert [drop_seconds(run.curve), learned_state(run)] == serial_results


@pytest.mark.parametrize(
    "executor",
    [["executor=serial"], ["executor=processes", "executor.workers=2"]],
    ids=["serial", "processes"],
)
def test_failure_has_the_same_reason_with_every_executor(
    executor: list[str], configure: Callable[..., RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken_loss(self: FedAvg, *arguments: object) -> torch.Tensor:
        raise ZeroDivisionError("empty batch\nsecond line")

    monkeypatch.setattr(FedAvg, "batch_loss", broken_loss)
    config = configure(*executor)
    record = execute_run(config, SilentTracker(config.run_dir))
    assert (record.status, record.reason) == ("failed", "ZeroDivisionError: empty batch")
    log = (config.run_dir / "log.txt").read_text()
    assert "Traceback" in log and "in broken_loss" in log and "second line" in log


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_number_of_workers_does_not_change_results(
    workers: int, configure: Callable[..., RunConfig], serial_results: list[object]
) -> None:
    options = ["executor=processes", f"executor.workers={workers}"]
    run = run_to_end(configure("method=lsg", "budget.participations=8", *options))
    assert run.executor.workers == workers
    assert [drop_seconds(run.curve), learned_state(run)] == serial_results


@pytest.fixture(scope="module")
def serial_results(tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    options = ["scale=smoke", "executor=serial", f"runs_dir={tmp_path_factory.mktemp('runs')}"]
    config = compose_run([*options, "method=lsg", "budget.participations=8"])
    run = run_to_end(config)
    return [drop_seconds(run.curve), learned_state(run)]


def test_serialization_keeps_all_kinds_of_values() -> None:
    value = {
        "float": torch.linspace(0, 1, 7),
        "scalar": torch.tensor(3),
        "bool": torch.tensor([True, False]),
        "empty": torch.zeros(0, 4),
        "strided": torch.arange(12.0).view(3, 4).t(),
        "with gradient": torch.ones(2, requires_grad=True),
        "others": [1, 2.5, "word", None, (True,)],
    }
    for shared in ([], [tensor for tensor in value.values() if isinstance(tensor, torch.Tensor)]):
        loaded = Exchange().loads(Exchange(shared).dumps(value))
        assert to_comparable(loaded) == to_comparable(value)
        loaded["float"] += 1  # writable


def test_shared_tensor_is_sent_once_and_comes_back_as_itself() -> None:
    vector, own = torch.arange(1000.0), torch.ones(2)
    ours, theirs = Exchange([vector]), Exchange()
    first, second = (ours.dumps([vector, own, vector]) for _ in range(2))
    assert len(first) > vector.nbytes > 4 * len(second)
    assert is_independent(first) and not is_independent(second)
    received = [theirs.loads(message) for message in (first, second)]
    assert all(torch.equal(message[0], vector) for message in received)
    assert received[0][0] is received[0][2] is received[1][0]
    reply = theirs.dumps([received[1][0], received[1][1], received[1][0].clone()])
    back = ours.loads(reply)
    assert back[0] is vector and torch.equal(back[1], own)
    assert torch.equal(back[2], vector) and back[2] is not vector


def test_payload_is_sent_once_per_worker_and_cohort(
    faulty: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also to a worker that replaces another one. State that comes back is shared, too."""
    sent: list[int] = []
    send = Connection.send_bytes

    def counted(connection: Connection, message: bytes) -> None:
        sent.append(len(message))
        send(connection, message)

    monkeypatch.setattr(Connection, "send_bytes", counted)
    vector = torch.ones(10_000)
    payload, ids = Payload({"model": vector}, {}), list(range(6))
    for run in range(3):
        if run == 2:
            first = faulty.executor._pool[0].process  # type: ignore[attr-defined]
            first.kill()
            first.join()
        sent.clear()
        faulty.pool.run_task(ids, FAULTY.keeps, lambda k, ctx: payload, faulty.context("train"))
        with_data = [size for size in sent if size > vector.nbytes]
        assert len(sent) - len(with_data) == len(ids) - 2 and len(with_data) == 2 + (run == 2)
        assert sum(sent) - vector.nbytes * len(with_data) < vector.nbytes / 2
        assert all(faulty.pool.states[k]["kept"] is vector for k in ids)


def test_dropout_uses_the_stream_of_the_task(open_run: Callable[..., Run]) -> None:
    """Neither earlier draws nor building the model change the result of a task."""
    run = open_run()
    worker_context(run).build_module = lambda: torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Dropout(0.5), torch.nn.Linear(64, 10)
    )
    payload = Payload({"model": torch.linspace(-1, 1, 650)}, {})

    def train(client_id: int) -> torch.Tensor:
        (reply,) = run.pool.run_task(
            [client_id], run.method.local_update, lambda k, ctx: payload, run.context("train")
        )
        return reply.models["model"]

    first = train(1)
    torch.manual_seed(5)
    assert torch.equal(train(1), first) and not torch.equal(train(2), first)


class AlwaysOnDropout(torch.nn.Dropout):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(x, 0.5, training=True)


def test_dropout_in_evaluation_does_not_depend_on_the_tasks(
    open_run: Callable[..., Run],
) -> None:
    """Two batches give the same result in one task and in two, whatever was drawn before."""
    run = open_run()
    worker_context(run).build_module = lambda: torch.nn.Sequential(
        torch.nn.Flatten(), AlwaysOnDropout(), torch.nn.Linear(64, 10)
    )
    model = {"model": torch.linspace(-1, 1, 650)}
    index = torch.arange(2 * EVAL_BATCH_SIZE)
    (whole,) = run.executor.run([PredictionTask(model, index)])
    torch.manual_seed(5)
    first, second = run.executor.run(
        [PredictionTask(model, part) for part in torch.split(index, EVAL_BATCH_SIZE)]
    )
    parts = torch.cat([first.log_likelihood, second.log_likelihood])
    assert torch.equal(whole.log_likelihood, parts)
    assert not torch.equal(first.log_likelihood.exp().mean(0), second.log_likelihood.exp().mean(0))


def test_predictions_do_not_depend_on_the_chunks(open_run: Callable[..., Run]) -> None:
    run = open_run()
    chunks = (torch.arange(360), torch.arange(180), torch.arange(180, 360))
    models = dict(run.method.eval_models())
    whole, first, second = run.executor.run([PredictionTask(models, index) for index in chunks])
    parts = torch.cat([first.log_likelihood, second.log_likelihood])
    assert torch.equal(whole.predicted, torch.cat([first.predicted, second.predicted]))
    assert torch.allclose(whole.log_likelihood, parts, atol=1e-5)
    assert torch.allclose(whole.log_likelihood.exp().sum(1), torch.ones(360), atol=1e-5)
