"""A training step as a CUDA graph (`executor.cuda_graph`). No GPU has run it yet."""

from collections.abc import Callable

import torch
from torch import Tensor

from methods.core.task import Batch

Step = Callable[[Batch], None]


class GraphStep:
    """A training step that is captured at the second batch and replayed for all batches from there.

    The first batch is trained without a graph. This creates the buffers of the optimizer and of
    CUDA's libraries. A batch of another size, such as a short last one, has no graph either.
    """

    def __init__(self, step: Step):
        self._step = step
        self._inputs: Batch | None = None  # in memory that the graph reads
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, batch: Batch) -> None:
        if self._inputs is None:
            self._inputs = _with_own_memory(batch)
            self._warm_up(batch)
        elif self._inputs.x.shape != batch.x.shape:
            self._step(batch)
        else:
            for buffer, value in zip(_tensors(self._inputs), _tensors(batch), strict=True):
                buffer.copy_(value)
            if self._graph is None:
                self._graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(self._graph):  # records the operators, executes none
                    self._step(self._inputs)
            self._graph.replay()

    def _warm_up(self, batch: Batch) -> None:
        stream, current = torch.cuda.Stream(), torch.cuda.current_stream()
        stream.wait_stream(current)
        with torch.cuda.stream(stream):  # A capture must not depend on work of the default stream.
            self._step(batch)
        current.wait_stream(stream)


def _tensors(batch: Batch) -> list[Tensor]:
    second = [] if batch.second is None else [batch.second]
    return [batch.x, batch.y, batch.index, *second]


def _with_own_memory(batch: Batch) -> Batch:
    x, y, index, *second = (tensor.clone() for tensor in _tensors(batch))
    return Batch(x, y, index, batch.epoch, batch.step, batch.rows, *second)
