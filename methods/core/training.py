"""Client-side training loop, and inference over all samples of a client."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.optim.sgd import sgd

from methods.core.flat_model import FlatModel
from methods.core.task import Batch, Client, Epoch, LocalTask, TrainParams, View

INFERENCE_BATCH_SIZE = 512
PLAIN_SGD: dict[str, Any] = {"fused": True, "dampening": 0, "nesterov": False, "maximize": False}

ModelList = Sequence[FlatModel]
LossFunction = Callable[[Batch], Tensor]
Penalty = Callable[[Batch], None]


class Optimizer:
    """SGD or Adam on the flat vectors of a model, as defined by torch.optim."""

    def __init__(self, model: FlatModel, train: TrainParams, lr: float):
        self.model, self.train, self.lr, self.steps = model, train, lr, 0
        self.momentum_buffer: list[Tensor | None] = [None]
        if train.optimizer == "adam":
            self.exp_avg, self.exp_avg_sq = (torch.zeros_like(model.weights) for _ in range(2))

    def step(self) -> None:
        """Update the weights from `model.grad`."""
        weights, grad, train = self.model.weights, self.model.grad, self.train
        if train.optimizer == "sgd":
            lr, momentum, decay = self.lr, train.momentum, train.weight_decay
            rates: dict[str, Any] = {"lr": lr, "momentum": momentum, "weight_decay": decay}
            sgd([weights], [grad], self.momentum_buffer, **rates, **PLAIN_SGD)
            return
        if train.weight_decay:
            grad.add_(weights, alpha=train.weight_decay)
        self.steps += 1
        self.exp_avg.lerp_(grad, 1 - 0.9)
        self.exp_avg_sq.mul_(0.999).addcmul_(grad, grad, value=1 - 0.999)
        scale = self.lr / (1 - 0.9**self.steps)
        denominator = self.exp_avg_sq.sqrt().div_((1 - 0.999**self.steps) ** 0.5).add_(1e-8)
        weights.addcdiv_(self.exp_avg, denominator, value=-scale)


class Trainer:
    """Optimizers and random streams of one local update. Usually used through `train`."""

    def __init__(self, task: LocalTask, models: ModelList, lr: float | None = None, **changes: Any):
        self.client = task.client
        self.train_params = replace(task.ctx.train, **changes) if changes else task.ctx.train
        if lr is None:
            lr = self.train_params.lr * self.train_params.lr_decay**task.ctx.round
        self.optimizers = {model: Optimizer(model, self.train_params, lr) for model in models}
        self.order, self.augment = task.generator("batches"), task.generator("augment")

    def epochs(
        self, subsets: Sequence[Tensor | None], view: str = "train", second_view: View | None = None
    ) -> list[Epoch]:
        """Shuffled epochs from the streams of the local update."""
        streams, size = (self.order, self.augment), self.train_params.batch_size
        return self.client.epochs(subsets, size, view, *streams, second_view)

    def fit(
        self,
        batches: Iterable[Batch],
        loss: LossFunction,
        models: ModelList | None = None,
        penalty: Penalty | None = None,
    ) -> None:
        """Train `models`, by default all, on each batch. The others are in evaluation mode."""
        trained = list(self.optimizers) if models is None else models
        for model in self.optimizers:
            model.train() if model in trained else model.eval()
        leaves = [leaf for model in trained for leaf in model.leaves]

        def step(batch: Batch) -> None:
            grads = iter(torch.autograd.grad(loss(batch), leaves, allow_unused=True))
            for model in trained:
                model.set_grad([next(grads) for _ in model.leaves])
                if self.train_params.clip_norm:
                    clip_grad_norm_(model.grad, self.train_params.clip_norm)
            if penalty is not None:
                penalty(batch)
            for model in trained:
                self.optimizers[model].step()

        is_static = self.train_params.optimizer == "sgd"  # Adam counts its steps.
        run_step = self.client.prepare_step(step) if is_static else step
        for batch in batches:
            run_step(batch)


def train(
    task: LocalTask,
    models: ModelList,
    loss: LossFunction,
    *,
    penalty: Penalty | None = None,  # adds closed-form terms to the gradients after backward
    before_epoch: Callable[[int, Tensor], None] | None = None,  # receives the order of samples
    after_epoch: Callable[[int], None] | None = None,
    view: str = "train",
    second_view: View | None = None,
    lr: float | None = None,  # None: train.lr * train.lr_decay^round
    **changes: Any,  # fields of `ctx.train` to replace, such as `local_epochs`
) -> None:
    """Train `models` together: one scalar loss per batch, one optimizer step per model.

    A model that the loss does not depend on gets a zero gradient.
    """
    trainer = Trainer(task, models, lr, **changes)
    epochs = trainer.epochs([None] * trainer.train_params.local_epochs, view, second_view)
    for number, (order, batches) in enumerate(epochs):
        if before_epoch is not None:
            before_epoch(number, order)
        trainer.fit(batches, loss, penalty=penalty)
        if after_epoch is not None:
            after_epoch(number)


def clip_grad_norm_(grad: Tensor, limit: float) -> None:
    """Scale a flat gradient down to a maximum norm, as torch.nn.utils.clip_grad_norm_ does."""
    grad.mul_(torch.clamp(limit / (grad.norm() + 1e-6), max=1.0))


@torch.no_grad()
def map_client_samples(
    client: Client,
    functions: Iterable[Callable[[Tensor], Tensor]],
    view: str = "plain",
    generator: torch.Generator | None = None,
) -> list[Tensor]:
    """Apply each function to the images of all samples, in order. Images are made once for all."""
    functions = list(functions)
    results: list[list[Tensor]] = [[] for _ in functions]
    for index in torch.arange(client.num_samples, device=client.device).split(INFERENCE_BATCH_SIZE):
        x = client.images(index, view, generator)
        for result, function in zip(results, functions, strict=True):
            result.append(function(x))
    return [torch.cat(result) for result in results]


def predict_proba(client: Client, *models: FlatModel) -> list[Tensor]:
    """Softmax outputs (n, classes) of each model in evaluation mode, all on the same images."""
    logits = map_client_samples(client, [model.eval() for model in models])
    return [z.softmax(1) for z in logits]
