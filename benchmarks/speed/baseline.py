"""Hand-written federated averaging with nothing around it: the least that the reference work costs in PyTorch on this machine.

No method, no metering, no checks, no streams of random numbers by name. Clients are dealt out in equal shares to some processes, each with a pipe.
"""

import multiprocessing
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.data import Dataset
from benchmarks.engine.functional import FunctionalModule
from methods.core.flat_model import FlatModel

UNROLLED = 5  # compiled steps per call

Step = Callable[
    [Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]
]  # weights, momentum, images, labels -> weights, momentum


class BaselineFedAvg:
    """FedAvg on a flat vector: `processes` x `threads`, eager or with UNROLLED compiled steps (network, loss and optimiser in one)."""

    def __init__(
        self,
        dataset: Dataset,
        parts: Sequence[Any],
        build_module: Callable[[], nn.Module],
        *,
        processes: int = 2,
        threads: int = 1,
        compiled: bool = False,
        clients_per_round: int = 10,
        epochs: int = 5,
        batch_size: int = 10,
        lr: float = 0.01,
        momentum: float = 0.5,
    ):
        self.dataset, self.parts, self.clients_per_round = dataset, parts, clients_per_round
        self.epochs, self.batch_size, self.lr, self.momentum = epochs, batch_size, lr, momentum
        self.module = build_module()
        self.vector = FlatModel(self.module).vector.clone()
        self.labels = torch.from_numpy(dataset.train_labels)
        self.truth = torch.from_numpy(dataset.test_labels)
        # Compiled before the fork, so that it is done once.
        self.step = self._compile(build_module()) if compiled else None
        context = multiprocessing.get_context("fork")
        self.pipes: list[Connection] = []
        self.workers = []
        for _ in range(processes):
            here, there = context.Pipe()
            self.workers.append(
                context.Process(target=self._serve, args=(there, threads), daemon=True)
            )
            self.workers[-1].start()
            there.close()
            self.pipes.append(here)

    def round(self) -> float:
        """Train a cohort, average, test. Returns the accuracy."""
        cohort = torch.randperm(len(self.parts))[: self.clients_per_round].tolist()
        share = -(-len(cohort) // len(self.pipes))
        for number, pipe in enumerate(self.pipes):
            pipe.send_bytes(b"train")
            pipe.send((self.vector.numpy(), cohort[number * share : (number + 1) * share]))
        self.vector = torch.from_numpy(sum(pipe.recv() for pipe in self.pipes) / len(cohort))
        return self.test()

    def test(self, batch_size: int = 500) -> float:
        count = len(self.dataset.test)
        share = -(-count // len(self.pipes))
        for number, pipe in enumerate(self.pipes):
            pipe.send_bytes(b"test")
            pipe.send(
                (self.vector.numpy(), number * share, min((number + 1) * share, count), batch_size)
            )
        return sum(pipe.recv() for pipe in self.pipes) / count

    def close(self) -> None:
        for pipe in self.pipes:
            pipe.send_bytes(
                b"stop"
            )  # other federations' processes hold copies of the pipe, so closing it would not be noticed
            pipe.close()
        for worker in self.workers:
            worker.join()

    def _serve(self, pipe: Connection, threads: int) -> None:
        for other in self.pipes:
            other.close()
        torch.set_num_threads(threads)
        net = FlatModel(self.module)
        while True:
            task = pipe.recv_bytes()
            if task == b"stop":
                return
            pipe.send(
                self._train(net, *pipe.recv())
                if task == b"train"
                else self._test(net, *pipe.recv())
            )

    def _train(self, net: FlatModel, vector: Any, clients: Sequence[int]) -> Any:
        start, total = torch.from_numpy(vector), torch.zeros_like(net.vector)
        net.train()
        for client in clients:
            net.vector.copy_(start)
            index = torch.from_numpy(self.parts[client])
            momentum = torch.zeros_like(net.weights)
            for _ in range(self.epochs):
                order = index[torch.randperm(len(index))]
                x, y = (
                    self.dataset.views(
                        self.dataset.train.fetch(order), "train", torch.default_generator
                    ),
                    self.labels[order],
                )
                self._epoch(net, momentum, x, y) if self.step is None else self._compiled_epoch(
                    net, momentum, x, y
                )
            total += net.vector
        return total.numpy()

    def _epoch(self, net: FlatModel, momentum: Tensor, x: Tensor, y: Tensor) -> None:
        for images, labels in zip(x.split(self.batch_size), y.split(self.batch_size), strict=True):
            net.grad.zero_()
            F.cross_entropy(net.module(images), labels).backward()
            momentum.mul_(self.momentum).add_(net.grad)
            net.weights.add_(momentum, alpha=-self.lr)

    @torch.no_grad()
    def _compiled_epoch(self, net: FlatModel, momentum: Tensor, x: Tensor, y: Tensor) -> None:
        assert self.step is not None
        size = UNROLLED * self.batch_size
        for images, labels in zip(x.split(size), y.split(size), strict=True):
            weights, speed = self.step(net.weights, momentum, images, labels)
            net.weights.copy_(weights)
            momentum.copy_(speed)

    def _compile(self, module: nn.Module) -> Step:
        pure, batch_size, lr, factor = (
            FunctionalModule(module, "forward"),
            self.batch_size,
            self.lr,
            self.momentum,
        )
        nothing = torch.zeros(0)

        def loss(weights: Tensor, x: Tensor, y: Tensor) -> Tensor:
            return F.cross_entropy(pure.functional_forward(weights, nothing, x)[0], y)

        def steps(
            weights: Tensor, momentum: Tensor, images: Tensor, labels: Tensor
        ) -> tuple[Tensor, Tensor]:
            for x, y in zip(images.split(batch_size), labels.split(batch_size), strict=True):
                momentum = factor * momentum + torch.func.grad(loss)(weights, x, y)
                weights = weights - lr * momentum
            return weights, momentum

        step = torch.compile(steps, dynamic=False, fullgraph=True, options={"compile_threads": 1})
        with torch.no_grad():
            weights = torch.zeros(sum(p.numel() for p in module.parameters()))
            count = UNROLLED * batch_size
            step(
                weights,
                weights.clone(),
                torch.zeros(count, *self.dataset.shape),
                torch.zeros(count, dtype=torch.int64),
            )
        return step

    @torch.no_grad()
    def _test(self, net: FlatModel, vector: Any, first: int, last: int, batch_size: int) -> int:
        net.vector.copy_(torch.from_numpy(vector))
        net.eval()
        right = 0
        for index in torch.arange(first, last).split(batch_size):
            x = self.dataset.views(self.dataset.test.fetch(index), "plain", None)
            right += int((net.module(x).argmax(1) == self.truth[index]).sum())
        return right
