"""What clients do with their data: the one training loop, and whole-set passes. Every method's client half is made of these."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from methods.core.contract import Batch, Client, RoundContext, TrainParams
from methods.core.flat_model import FlatModel

SCORING_BATCH = 512


class Optimizer:
    """SGD or Adam on a network's flat vectors, as torch.optim defines them."""

    def __init__(self, net: FlatModel, train: TrainParams, lr: float):
        self.net, self.train, self.lr = net, train, lr
        self.steps = 0
        self.first = (
            torch.zeros_like(net.weights) if train.momentum or train.optimizer == "adam" else None
        )
        self.second = torch.zeros_like(net.weights) if train.optimizer == "adam" else None

    def step(self) -> None:
        weights, grad, train = self.net.weights, self.net.grad, self.train
        if train.weight_decay:
            grad.add_(weights, alpha=train.weight_decay)
        if self.second is not None and self.first is not None:
            self.steps += 1
            self.first.lerp_(grad, 1 - 0.9)
            self.second.mul_(0.999).addcmul_(grad, grad, value=1 - 0.999)
            scale = self.lr / (1 - 0.9**self.steps)
            denominator = self.second.sqrt().div_((1 - 0.999**self.steps) ** 0.5).add_(1e-8)
            weights.addcdiv_(self.first, denominator, value=-scale)
        elif self.first is not None:
            self.first.mul_(train.momentum).add_(grad)
            weights.add_(self.first, alpha=-self.lr)
        else:
            weights.add_(grad, alpha=-self.lr)


class Trainer:
    """What lasts through one visit, the optimisers and the random streams, for methods that do something between epochs. See `train`."""

    def __init__(
        self,
        client: Client,
        nets: Sequence[FlatModel],
        ctx: RoundContext,
        *,
        lr: float | None = None,
        **changes: Any,
    ):
        self.client = client
        self.settings = replace(ctx.train, **changes) if changes else ctx.train
        rate = self.settings.lr * self.settings.lr_decay**ctx.round if lr is None else lr
        self.optimizers = {net: Optimizer(net, self.settings, rate) for net in nets}
        self.order, self.augment = (
            ctx.generator("batches", client.id),
            ctx.generator("augment", client.id),
        )

    def batches(
        self, view: str = "train", subset: Tensor | None = None, epoch: int = 0
    ) -> Iterator[Batch]:
        """One shuffled epoch from the visit's streams."""
        return self.client.batches(
            self.settings.batch_size, view, self.order, self.augment, epoch, subset
        )

    def epoch(
        self,
        batch_loss: Callable[[Batch], Tensor],
        number: int = 0,
        *,
        nets: Sequence[FlatModel] | None = None,
        penalty: Callable[[Batch], None] | None = None,
        after_step: Callable[[Batch], None] | None = None,
        view: str = "train",
        subset: Tensor | None = None,
    ) -> None:
        """One epoch for `nets`, by default for all. The others are put in evaluation mode and do not move."""
        trained = list(self.optimizers) if nets is None else nets
        for net in self.optimizers:
            net.train() if net in trained else net.eval()
        for batch in self.batches(view, subset, number):
            for net in trained:
                net.grad.zero_()
            batch_loss(batch).backward()
            if self.settings.clip_norm:
                for net in trained:
                    clip(net.grad, self.settings.clip_norm)
            if penalty is not None:
                penalty(batch)
            for net in trained:
                self.optimizers[net].step()
            if after_step is not None:
                after_step(batch)


def train(
    client: Client,
    nets: Sequence[FlatModel],
    batch_loss: Callable[[Batch], Tensor],
    ctx: RoundContext,
    *,
    penalty: Callable[[Batch], None] | None = None,
    after_step: Callable[[Batch], None] | None = None,
    after_epoch: Callable[[int], None] | None = None,
    view: str = "train",
    subset: Tensor | None = None,
    lr: float | None = None,
    **changes: Any,
) -> None:
    """Train `nets` together for some epochs: one scalar loss per batch, one optimiser step per network.

    `penalty` adds closed-form terms to the flat gradients after the backward pass (proximal terms need no graph). Networks that a batch's loss does not
    touch get a zero gradient. `changes` replaces fields of `ctx.train` (local_epochs, batch_size, momentum, ...). The learning rate is
    train.lr * train.lr_decay^round unless `lr` is given.
    """
    trainer = Trainer(client, nets, ctx, lr=lr, **changes)
    for epoch in range(trainer.settings.local_epochs):
        trainer.epoch(
            batch_loss, epoch, penalty=penalty, after_step=after_step, view=view, subset=subset
        )
        if after_epoch is not None:
            after_epoch(epoch)


def clip(grad: Tensor, limit: float) -> None:
    """Scale a flat gradient down to a global norm, as torch.nn.utils.clip_grad_norm_ does."""
    grad.mul_(torch.clamp(limit / (grad.norm() + 1e-6), max=1.0))


@torch.no_grad()
def map_client_samples(
    client: Client,
    functions: Iterable[Callable[[Tensor], Tensor]],
    view: str = "plain",
    generator: torch.Generator | None = None,
) -> list[Tensor]:
    """Each function of the images over all of a client's samples, in its own order; the images are made once for all functions."""
    functions = list(functions)
    parts: list[list[Tensor]] = [[] for _ in functions]
    for index in torch.arange(client.num_samples).split(SCORING_BATCH):
        x = client.images(index, view, generator)
        for part, function in zip(parts, functions, strict=True):
            part.append(function(x))
    return [torch.cat(part) for part in parts]


def probabilities(
    client: Client, *nets: FlatModel, view: str = "plain", generator: torch.Generator | None = None
) -> list[Tensor]:
    """Softmax outputs (n, classes) of each network in eval mode over all of a client's samples, on the same views."""

    def softmax_of(net: FlatModel) -> Callable[[Tensor], Tensor]:
        net.eval()
        return lambda x: net(x).softmax(1)

    return map_client_samples(client, [softmax_of(net) for net in nets], view, generator)
