"""The clients of a round as one stacked network (`executor=vectorized`), for devices on which one client's small batches leave most units idle.

Each client's task runs on a thread of its own, as the plain Python that it is. Where it needs a training pass of its network it waits until all
others wait too; then the passes of equal shape are computed together by torch.func.vmap over the clients' stacked weights. So a method needs no
second form, and clients of different sizes simply part ways at their short batches. Results equal those of the other executors up
to rounding, except for networks with dropout, whose masks come from one stream for all. On a CPU there is nothing idle to win: it is slower there.
"""

import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.executors import Job, Prediction, Workshop, one_thread
from methods.network import Network, Pure


class Vectorized:
    """An executor. Every client of a round has a workshop, that is networks, of its own."""

    workers = 1

    def __init__(self, workshop: Workshop):
        one_thread()
        self._engine = LockstepEngine(workshop.build_module)
        self._workshop = workshop
        self._stalls: list[Workshop] = []

    def run(self, jobs: Sequence[Job | Prediction]) -> list[Any]:
        if any(isinstance(job, Prediction) for job in jobs):
            return [self._workshop.do(job) for job in jobs]
        while len(self._stalls) < len(jobs):
            self._stalls.append(replace(self._workshop, engine=self._engine))
        return self._engine.together(
            [partial(stall.do, job) for stall, job in zip(self._stalls, jobs, strict=False)]
        )

    def close(self) -> None:
        pass


@dataclass(eq=False)  # two wishes are never the same, and tensors have no yes or no to compare by
class Request:
    """One client's wish for a pass, and the answer to it."""

    order: int  # of the client in its round: groups are computed in the same order in every run
    key: Hashable  # passes with equal keys are computed together
    answer_all: Callable[[list["Request"]], None]
    arguments: tuple[Any, ...]
    answer: Any = None


@dataclass
class Stack:
    """The forward pass of some clients, kept for the backward pass."""

    weights: Tensor  # (clients, weights)
    x: Tensor  # (clients, batch, ...)
    output: Tensor


class LockstepEngine:
    """Computes training passes of networks when every client that still runs has asked for one."""

    def __init__(self, build_module: Callable[[], nn.Module]):
        self._build_module = build_module
        self._pure: dict[str, Pure] = {}
        self._condition = threading.Condition()
        self._own = threading.local()
        self._running = 0
        self._waiting: list[Request] = []
        self._failure: BaseException | None = None

    def together(self, tasks: Sequence[Callable[[], Any]]) -> list[Any]:
        """Run the tasks to their ends and return their results; the first error of any of them ends all."""
        results: list[Any] = [None] * len(tasks)
        self._running, self._waiting, self._failure = len(tasks), [], None

        def live(order: int, task: Callable[[], Any]) -> None:
            self._own.order = order
            try:
                results[order] = task()
            except BaseException as error:
                self._failure = self._failure or error
            with self._condition:
                self._running -= 1
                self._answer_when_all_wait()

        threads = [threading.Thread(target=live, args=each) for each in enumerate(tasks)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failure is not None:
            raise self._failure
        return results

    def __call__(self, net: Network, part: str, x: Tensor) -> Tensor:
        return StackedPass.apply(net.leaf, x, self, net, part) if net.learns else net.plain(part, x)

    def ask(
        self, key: Hashable, answer_all: Callable[[list[Request]], None], *arguments: Any
    ) -> Any:
        request = Request(self._own.order, key, answer_all, arguments)
        with self._condition:
            self._waiting.append(request)
            self._answer_when_all_wait()
            self._condition.wait_for(
                lambda: self._failure is not None or request not in self._waiting
            )
        if self._failure is not None:
            raise RuntimeError("another client of the round failed")
        return request.answer

    def _answer_when_all_wait(self) -> None:
        if len(self._waiting) < self._running and self._failure is None:
            return
        groups: dict[Hashable, list[Request]] = {}
        for request in sorted(self._waiting, key=lambda request: request.order):
            groups.setdefault(request.key, []).append(request)
        try:
            if self._failure is None:
                for group in groups.values():
                    group[0].answer_all(group)
        except BaseException as error:
            self._failure = error
        self._waiting.clear()
        self._condition.notify_all()

    def forward(self, part: str) -> Callable[[list[Request]], None]:
        def answer_all(group: list[Request]) -> None:
            if part not in self._pure:
                self._pure[part] = Pure(self._build_module(), part)
            nets, inputs = zip(*(request.arguments for request in group), strict=True)
            weights = torch.stack([net.weights for net in nets]).requires_grad_()
            x = torch.stack([x.detach() for x in inputs]).requires_grad_(inputs[0].requires_grad)
            with torch.enable_grad():
                output, buffers = torch.func.vmap(self._pure[part].run, randomness="different")(
                    weights, torch.stack([net.buffers for net in nets]), x
                )
            stack = Stack(weights, x, output)
            for row, request in enumerate(group):
                nets[row].buffers.copy_(buffers[row].detach())
                request.answer = (output[row].detach().clone(), stack, row)

        return answer_all


def backward(group: list[Request]) -> None:
    """Requests of one stack: (stack, row, gradient of that row's output). Clients that do not need theirs have none."""
    stack: Stack = group[0].arguments[0]
    gradient = torch.zeros_like(stack.output)
    for request in group:
        gradient[request.arguments[1]] = request.arguments[2]
    wanted = (stack.weights, stack.x) if stack.x.requires_grad else (stack.weights,)
    # Others may come for the same stack at their next stop, so the graph stays until the last of them is gone.
    gradients = torch.autograd.grad(stack.output, wanted, gradient, retain_graph=True)
    for request in group:
        request.answer = tuple(each[request.arguments[1]] for each in gradients)


class StackedPass(torch.autograd.Function):
    """A client's share of a stacked pass in that client's own graph."""

    @staticmethod
    def forward(
        ctx: Any, leaf: Tensor, x: Tensor, engine: LockstepEngine, net: Network, part: str
    ) -> Tensor:
        key = ("forward", part, x.shape, x.requires_grad)
        output, ctx.stack, ctx.row = engine.ask(key, engine.forward(part), net, x)
        ctx.engine = engine
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        answer = ctx.engine.ask(
            ("backward", id(ctx.stack)), backward, ctx.stack, ctx.row, gradients[0]
        )
        return answer[0], answer[1] if len(answer) > 1 else None, None, None, None
