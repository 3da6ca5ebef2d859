"""Executors: where a task runs does not show in its result; what goes wrong in a worker is told and does not hang."""

import os
import pickle
import signal
import time
from collections.abc import Callable, Iterator

import pytest
import torch
from running import SilentTracker, learnt, loop, plain, timeless

from benchmarks.config import sweep
from benchmarks.config.schema import RunConfig
from benchmarks.executors.processes import ProcessExecutor, WorkerError
from benchmarks.executors.serialization import dumps
from benchmarks.federation.worker import PredictionTask, WorkerContext
from benchmarks.loop.runner import Run, execute_run
from methods.core.contract import Client, DivergenceError, Payload, Reply, RoundContext
from methods.fedavg import FedAvg


class Troubled(FedAvg):
    """FedAvg with tasks in which something goes wrong."""

    name = "troubled"

    def fails(self, client: Client, payload: Payload, ctx: RoundContext) -> Reply:
        if client.id == 3:
            raise ZeroDivisionError("no samples left")
        return client.reply({}, id=client.id)

    def diverges(self, client: Client, payload: Payload, ctx: RoundContext) -> Reply:
        raise DivergenceError("round 0 (train): client 3 is lost")

    def cannot_be_sent(self, client: Client, payload: Payload, ctx: RoundContext) -> Reply:
        return client.reply({}, function=lambda: None)

    def dies(self, client: Client, payload: Payload, ctx: RoundContext) -> Reply:
        os.kill(os.getpid(), signal.SIGKILL)
        return client.reply({})

    def sleeps(self, client: Client, payload: Payload, ctx: RoundContext) -> Reply:
        time.sleep(0.3 if client.id == 0 else 0)
        return client.reply({}, id=client.id, process=os.getpid())


@pytest.fixture
def troubled(open_run: Callable[..., Run]) -> Iterator[Run]:
    """A run over two processes whose client half is troubled."""
    run = open_run("executor=serial")
    shop: WorkerContext = run.executor._workshop  # type: ignore[attr-defined]
    shop.method = Troubled(run.method.params)
    run.executor = run.fleet.executor = ProcessExecutor(shop, 2)
    yield run
    run.executor.close()
    assert not any(process.is_alive() for process in run.executor._processes)


def ask(run: Run, task: Callable[..., Reply], ids: list[int]) -> list[Reply]:
    return run.fleet.ask(ids, task, lambda k, ctx: Payload({}, {}), run.context("train"))


def test_results_come_back_in_the_order_of_the_clients(troubled: Run) -> None:
    replies = ask(troubled, Troubled.sleeps, [0, 5, 2, 7, 1])
    assert (
        [reply.values["id"] for reply in replies]
        == [reply.client_id for reply in replies]
        == [0, 5, 2, 7, 1]
    )
    assert len({reply.values["process"] for reply in replies} - {os.getpid()}) == 2


def test_error_in_a_worker_is_told_with_its_traceback_and_the_pool_survives(troubled: Run) -> None:
    for _ in range(2):
        with pytest.raises(WorkerError) as caught:
            ask(troubled, Troubled.fails, [0, 1, 2, 3, 4, 5, 6, 7])
        first, *others = str(caught.value).splitlines()
        assert first == "ZeroDivisionError: no samples left"
        assert any("in fails" in line for line in others)
    assert [reply.values["id"] for reply in ask(troubled, Troubled.fails, [4, 5])] == [4, 5]


def test_divergence_in_a_worker_stays_a_divergence(troubled: Run) -> None:
    with pytest.raises(DivergenceError, match=r"round 0 \(train\): client 3 is lost"):
        ask(troubled, Troubled.diverges, [3, 4])


def test_reply_that_cannot_be_sent_is_told(troubled: Run) -> None:
    with pytest.raises(WorkerError, match="lambda"):
        ask(troubled, Troubled.cannot_be_sent, [3])
    assert len(ask(troubled, Troubled.fails, [4])) == 1


def test_worker_killed_at_work_is_told(troubled: Run) -> None:
    with pytest.raises(
        WorkerError,
        match="^a worker process died .*; the same command goes on from the last checkpoint$",
    ):
        ask(troubled, Troubled.dies, [3, 4])


def test_worker_killed_between_two_tasks_is_told(troubled: Run) -> None:
    for process in troubled.executor._processes:  # type: ignore[attr-defined]
        process.kill()
        process.join()
    with pytest.raises(WorkerError, match="^a worker process died"):
        ask(troubled, Troubled.fails, [4, 5])


def test_closing_ends_workers_that_are_still_busy(troubled: Run) -> None:
    """One worker dies while the other has 0.3 s to go; closing waits for it, and it finds nobody to answer."""
    executor = troubled.executor
    assert isinstance(executor, ProcessExecutor)
    ctx = troubled.context("train")
    with pytest.raises(WorkerError):
        troubled.fleet.ask(
            [0, 1],
            Troubled.sleeps,
            lambda k, ctx: executor._processes[1].kill() or Payload({}, {}),
            ctx,
        )  # type: ignore[func-returns-value]
    executor.close()
    assert [process.exitcode for process in executor._processes] == [0, -signal.SIGKILL]


@pytest.mark.parametrize(
    "executor",
    [["executor=serial"], ["executor=processes", "executor.workers=2"]],
    ids=["serial", "processes"],
)
def test_failure_reads_the_same_wherever_it_happens(
    executor: list[str], configure: Callable[..., RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FedAvg, "batch_loss", Troubled.fails)
    config = configure(*executor)
    record = execute_run(config, SilentTracker(config.run_dir))
    assert (
        record["status"] == "failed"
        and record["reason"] == "AttributeError: 'FlatModel' object has no attribute 'id'"
    )
    assert "Traceback" in (config.run_dir / "log.txt").read_text()


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_number_of_workers_does_not_change_a_byte(
    workers: int, configure: Callable[..., RunConfig], serial: list[object]
) -> None:
    run = loop(
        configure(
            "method=lsg",
            "budget.participations=8",
            "executor=processes",
            f"executor.workers={workers}",
        )
    )
    assert run.executor.workers == workers
    assert [timeless(run.curve), learnt(run)] == serial


@pytest.fixture(scope="module")
def serial(tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    ((_, config),) = sweep.expand(
        [
            "scale=smoke",
            "executor=serial",
            "method=lsg",
            "budget.participations=8",
            f"runs_dir={tmp_path_factory.mktemp('runs')}",
        ]
    )
    run = loop(config)
    return [timeless(run.curve), learnt(run)]


def test_tensors_of_every_kind_survive_the_way_to_a_worker() -> None:
    value = {
        "float": torch.linspace(0, 1, 7),
        "scalar": torch.tensor(3),
        "bool": torch.tensor([True, False]),
        "empty": torch.zeros(0, 4),
        "strided": torch.arange(12.0).view(3, 4).t(),
        "with gradient": torch.ones(2, requires_grad=True),
        "others": [1, 2.5, "word", None, (True,)],
    }
    back = pickle.loads(dumps(value))
    assert plain(back) == plain(value)
    back["float"] += 1  # writable


def test_dropout_draws_from_a_stream_of_the_task(open_run: Callable[..., Run]) -> None:
    """The same task gives the same bytes whatever was drawn before it, and whether or not its network had to be built first."""
    run = open_run()
    shop: WorkerContext = run.executor._workshop  # type: ignore[attr-defined]
    shop.build_module = lambda: torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Dropout(0.5), torch.nn.Linear(64, 10)
    )
    payload = Payload({"model": torch.linspace(-1, 1, 650)}, {})

    def train(client_id: int) -> torch.Tensor:
        return run.fleet.ask(
            [client_id], run.method.local_update, lambda k, ctx: payload, run.context("train")
        )[0].models["model"]

    first = train(1)
    torch.manual_seed(5)
    assert torch.equal(train(1), first) and not torch.equal(train(2), first)


def test_dropout_that_stays_on_in_evaluation_draws_from_a_stream_of_the_samples(
    open_run: Callable[..., Run],
) -> None:
    """Two cuts of 1000 samples into workers' shares, both in whole batches of 500, and whatever was drawn before."""

    class AlwaysOn(torch.nn.Dropout):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.dropout(x, 0.5, training=True)

    run = open_run()
    run.executor._workshop.build_module = lambda: torch.nn.Sequential(
        torch.nn.Flatten(), AlwaysOn(), torch.nn.Linear(64, 10)
    )  # type: ignore[attr-defined]
    model = {"model": torch.linspace(-1, 1, 650)}
    (whole,) = run.executor.run([PredictionTask(model, "train", torch.arange(1000))])
    torch.manual_seed(5)
    first, second = run.executor.run(
        [PredictionTask(model, "train", part) for part in torch.arange(1000).split(500)]
    )
    assert torch.equal(
        whole.log_likelihood, torch.cat([first.log_likelihood, second.log_likelihood])
    )
    assert not torch.equal(first.log_likelihood.exp().mean(0), second.log_likelihood.exp().mean(0))


def test_predictions_do_not_depend_on_how_they_are_cut(open_run: Callable[..., Run]) -> None:
    run = open_run()
    cuts = (torch.arange(360), torch.arange(180), torch.arange(180, 360))
    whole, first, second = run.executor.run(
        [PredictionTask(run.method.models, "test", index) for index in cuts]
    )
    assert torch.equal(whole.top, torch.cat([first.top, second.top]))
    assert torch.allclose(
        whole.log_likelihood, torch.cat([first.log_likelihood, second.log_likelihood]), atol=1e-5
    )
    assert torch.allclose(whole.log_likelihood.exp().sum(1), torch.ones(360), atol=1e-5)
