"""DivideMix: terms of its loss, the division of samples, and the training on divisions."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from method_helpers import make_task, run_local_update
from torch import nn

from methods import dividemix
from methods.core import training
from methods.core.flat_model import FlatModel
from methods.core.params import build_params
from methods.core.task import TaskSpec
from methods.dividemix import (
    DivideMix,
    DivideMixParams,
    clean_probability,
    mixmatch_loss,
    uniform_penalty,
)
from methods.fedavg import FedAvg
from methods.toolkit.losses import entropy, sharpen

LOGITS = torch.tensor([[2.0, 1.0, 0.0], [0.0, 0.0, 3.0]])
TARGETS = torch.tensor([[0.7, 0.2, 0.1], [0.0, 1.0, 0.0]])


@pytest.fixture
def vectors(initial_vector):
    """Two models with different weights."""
    noise = torch.randn(len(initial_vector), generator=torch.Generator().manual_seed(1))
    return {"a": initial_vector, "b": initial_vector + 0.1 * noise}


def update(client, ctx, vectors, **params):
    method = DivideMix(DivideMixParams(**{"divide_epochs": 1, **params}))
    return run_local_update(method, client, vectors, ctx)


def set_division(monkeypatch, clean_a, clean_b=None):
    """Replace the mixture fit by fixed clean probabilities."""
    division = [torch.tensor(clean_a), torch.tensor(clean_a if clean_b is None else clean_b)]
    monkeypatch.setattr(dividemix, "clean_probabilities", lambda client, models, rng: division)


# Loss


def test_sharpen():
    sharpened = sharpen(torch.tensor([[0.35526, 0.145003, 0.499737]]), 0.5)
    assert torch.allclose(sharpened, torch.tensor([[0.31793, 0.052966, 0.629104]]), atol=1e-6)


def test_confidence_penalty_loss():
    """Cross-entropies .407606 and .094923; entropies .832396 and .366595."""
    loss = dividemix.confidence_penalty_loss(LOGITS, torch.tensor([0, 2]))
    assert loss.item() == pytest.approx(0.251265 - 0.599495, abs=2e-6)


def test_uniform_penalty():
    """The mean prediction is (.3553, .1450, .4997). Its divergence from uniform is .121247."""
    assert uniform_penalty(LOGITS.softmax(1).mean(0)).item() == pytest.approx(0.121247, abs=1e-6)
    assert uniform_penalty(torch.full((7,), 1 / 7)).item() == pytest.approx(0.0, abs=1e-6)


def test_unlabeled_loss():
    """The mean squared error is .290656. Only this term depends on the weight."""
    logits, targets = torch.cat([LOGITS, LOGITS]), torch.cat([TARGETS, TARGETS])
    losses = [mixmatch_loss(logits, targets, 2, weight) for weight in (0.0, 1.0, 25.0)]
    assert (losses[1] - losses[0]).item() == pytest.approx(0.290656, abs=1e-6)
    assert (losses[2] - losses[0]).item() == pytest.approx(25 * 0.290656, abs=1e-4)


def test_labeled_loss():
    """Without unlabeled rows the loss is cross-entropy (1.951264) plus penalty (.121247)."""
    loss = mixmatch_loss(LOGITS, TARGETS, 2, 25.0)
    assert loss.item() == pytest.approx(1.951264 + 0.121247, abs=1e-6)


def test_mixmatch_loss_by_hand(make_client, make_ctx, vectors):
    """Digits are not augmented and mixup_alpha=0 mixes nothing, so the loss has a closed form.

    Labeled target: sharpen(w y + (1 - w) p_a). Unlabeled target: sharpen((p_a + p_b) / 2).
    """
    client, ctx = make_client(num_samples=6), make_ctx(stage="divide", round=8)
    a, b = client.load_model(vectors["a"]), client.load_model(vectors["b"])
    clean = torch.tensor([0.9, 0.6, 1.0, 0.2, 0.1, 0.4])
    params = DivideMixParams(
        mixup_alpha=0.0,
        lambda_u=3.0,
        lambda_u_ramp_fraction=0.0,
        budget_fraction=1.0,
        warmup_fraction=0.0,
    )
    trainer = training.Trainer(make_task(client, vectors, ctx), [a, b])
    method = DivideMix(params)
    division = method._divide(clean, trainer, ctx.rng("dividemix", 0))
    batches, loss = method._mixmatch_epoch(trainer, (a, b), division, ctx)
    value = loss(next(iter(batches)))

    with torch.no_grad():
        images = client.images(torch.arange(6))
        p_a, p_b = (model(images).softmax(1).double().numpy() for model in (a, b))

    def sharp(p):
        return p**2 / (p**2).sum(1, keepdims=True)

    w = clean.double().numpy()[:3, None]
    target_x = sharp(w * np.eye(10)[client.given_labels[:3].numpy()] + (1 - w) * p_a[:3])
    target_u = sharp((p_a[3:] + p_b[3:]) / 2)
    labeled = -(target_x * np.log(p_a[:3])).sum(1).mean()
    unlabeled = ((p_a[3:] - target_u) ** 2).mean()
    penalty = np.mean(np.log(0.1 / p_a.mean(0)))
    assert value.item() == pytest.approx(labeled + 3.0 * unlabeled + penalty, abs=1e-5)


def test_mixup_inputs(make_client, make_ctx, vectors, monkeypatch):
    """Inputs are two views of labeled and unlabeled samples. The weight of a row is at least 0.5.

    8 labeled samples come in batches of 4, 5 unlabeled samples in batches of 4 and 1.
    """
    calls, mix = [], dividemix.mixup.mix

    def recorded_mix(*arguments):
        calls.append(arguments)
        return mix(*arguments)

    monkeypatch.setattr(dividemix.mixup, "mix", recorded_mix)
    set_division(monkeypatch, [1.0] * 8 + [0.0] * 5)
    update(make_client(num_samples=13), make_ctx(stage="divide", round=8, batch_size=4), vectors)
    assert [len(values) for values, *_ in calls] == [16, 16, 10, 10] * 2
    for values, lam, partners in calls:
        assert 0.5 <= lam <= 1
        assert sorted(partners.tolist()) == list(range(len(values)))
    assert all(torch.allclose(y.sum(1), torch.ones(len(y))) for y, *_ in calls[1::2])


# Division


def test_clean_probability():
    """The lower of two distant groups is clean. The scale of the losses does not matter."""
    losses = torch.cat([torch.linspace(0.1, 0.3, 20), torch.linspace(3.0, 3.3, 10)])
    clean = clean_probability(losses, 0)
    assert (clean[:20] > 0.99).all() and (clean[20:] < 0.01).all()
    assert torch.allclose(clean_probability(losses * 7 + 2, 0), clean, atol=1e-4)


@pytest.mark.parametrize("losses", [[1.5], [0.7] * 5, [float("nan"), 1.0], [float("inf"), 1.0]])
def test_equal_or_nonfinite_losses_are_clean(losses):
    assert torch.equal(clean_probability(torch.tensor(losses), 0), torch.ones(len(losses)))


def test_division_finds_flipped_labels(make_client, make_ctx, initial_vector):
    """A model trained on clean labels finds labels that were flipped afterwards."""
    teacher, ctx = make_client(num_samples=200), make_ctx(local_epochs=20, lr=0.05)
    vector = run_local_update(FedAvg(None), teacher, initial_vector, ctx).models["model"]
    wrong = torch.arange(200) % 5 == 0
    labels = torch.where(wrong, (teacher.given_labels + 1) % 10, teacher.given_labels)
    client = make_client(labels=labels.numpy())
    models = [client.load_model(vector)]
    (clean,) = dividemix.clean_probabilities(client, models, np.random.default_rng(0))
    assert (clean[wrong] <= 0.5).float().mean() > 0.9
    assert (clean[~wrong] > 0.5).float().mean() > 0.9


def record_epochs(monkeypatch):
    """For each epoch: index of the trained model, its samples, and which models changed."""
    epochs, fit = [], training.Trainer.fit

    def recorded(self, batches, loss, models):
        batches = list(batches)
        before = [model.vector.clone() for model in self.optimizers]
        fit(self, batches, loss, models)
        pairs = zip(self.optimizers, before, strict=True)
        changed = [not torch.equal(model.vector, old) for model, old in pairs]
        samples = sorted(torch.cat([batch.index for batch in batches]).tolist())
        epochs.append((list(self.optimizers).index(models[0]), samples, changed))

    monkeypatch.setattr(training.Trainer, "fit", recorded)
    return epochs


def test_model_trains_on_division_of_other(make_client, make_ctx, vectors, monkeypatch):
    """a finds 0 to 3 clean, b finds 6 to 9. The diagnosis keeps the result of a."""
    set_division(monkeypatch, [1.0] * 4 + [0.0] * 6, [0.0] * 6 + [1.0] * 4)
    epochs = record_epochs(monkeypatch)
    client = make_client(num_samples=10)
    update(client, make_ctx(stage="divide", round=8), vectors, divide_epochs=2)
    assert epochs == [(0, [6, 7, 8, 9], [True, False]), (1, [0, 1, 2, 3], [False, True])] * 2
    assert client.state["doubtful"].tolist() == [False] * 4 + [True] * 6
    assert client.labels is client.given_labels


@pytest.mark.parametrize("num_clean", [0, 1])
def test_cross_entropy_without_labeled_samples(
    make_client, make_ctx, vectors, monkeypatch, num_clean
):
    """With fewer than two labeled samples, both models train an epoch as in FedAvg."""
    set_division(monkeypatch, [1.0] * num_clean + [0.0] * (12 - num_clean))
    client, ctx = make_client(num_samples=12), make_ctx(round=8)
    fedavg = run_local_update(FedAvg(None), client, vectors["a"], ctx)
    epochs = record_epochs(monkeypatch)
    reply = update(make_client(num_samples=12), make_ctx(stage="divide", round=8), vectors)
    everything = list(range(12))
    assert epochs == [(0, everything, [True, False]), (1, everything, [False, True])]
    assert torch.equal(reply.models["a"], fedavg.models["model"])


def test_lambda_u_has_no_effect_without_unlabeled_samples(
    make_client, make_ctx, vectors, monkeypatch
):
    set_division(monkeypatch, [1.0] * 12)
    ctx = make_ctx(stage="divide", round=8)
    replies = [
        update(make_client(num_samples=12), ctx, vectors, lambda_u=weight)
        for weight in (0.0, 100.0)
    ]
    for name in ("a", "b"):
        assert torch.isfinite(replies[0].models[name]).all()
        assert torch.equal(replies[0].models[name], replies[1].models[name])
        assert not torch.equal(replies[0].models[name], vectors[name])


@pytest.mark.parametrize("labels", [[3], [3, 4], [5] * 11])
def test_small_clients(make_client, make_ctx, vectors, labels):
    client = make_client(labels=labels)
    reply = update(client, make_ctx(stage="divide", round=8), vectors, divide_epochs=3)
    assert all(torch.isfinite(vector).all() for vector in reply.models.values())
    assert client.state["doubtful"].shape == (len(labels),)


# Rounds and runs


@pytest.mark.parametrize(("round", "expected"), [(20, 0.0), (28, 0.5), (36, 1.0), (99, 1.0)])
def test_ramp(make_ctx, round, expected):
    """20 warm-up rounds, then 80. The ramp takes 0.2 * 80 = 16 rounds."""
    spec = TaskSpec("cifar10", (3, 32, 32), 10, 100, 10, 10000, 512, 1)
    ctx = replace(make_ctx(stage="divide", round=round), spec=spec)
    assert DivideMix(DivideMixParams()).unlabeled_ramp(ctx) == pytest.approx(expected)


def test_warmup_is_fedavg_with_own_batch_size(make_client, make_ctx, vectors):
    client = make_client()
    reply = update(client, make_ctx(stage="warmup"), vectors, warmup_batch_size=16)
    for name, vector in vectors.items():
        fedavg = run_local_update(FedAvg(None), make_client(), vector, make_ctx(batch_size=16))
        assert torch.equal(reply.models[name], fedavg.models["model"])
    assert client.state == {}
    assert client.samples_trained == 2 * client.num_samples


def test_warmup_entropy_lowers_confidence(make_client, make_ctx, vectors):
    """After the same steps, predictions have a higher entropy."""
    entropies = []
    for warmup_entropy in (False, True):
        client = make_client()
        ctx = make_ctx(stage="warmup", local_epochs=5, lr=0.1)
        reply = update(client, ctx, vectors, warmup_batch_size=16, warmup_entropy=warmup_entropy)
        model = client.load_model(reply.models["a"]).eval()
        (logits,) = training.map_client_samples(client, [model])
        entropies.append(entropy(logits.softmax(1)).mean().item())
    assert entropies[0] < entropies[1]


def test_prediction_averages_logits():
    """Logits (3, 0) and (-1, 0) have the mean (1, 0)."""
    models = {
        name: FlatModel(nn.Linear(1, 2, bias=False)).load(torch.tensor([value, 0.0]))
        for name, value in (("a", 3.0), ("b", -1.0))
    }
    predicted = DivideMix(DivideMixParams()).predict(models, torch.ones(1, 1))
    assert torch.allclose(predicted, torch.tensor([[1.0, 0.0]]).softmax(1))


def test_run(run_small):
    record = run_small(
        *("method=dividemix", "method.budget_fraction=0.25", "method.warmup_fraction=0.5"),
        *("method.divide_epochs=1", "train.batch_size=32"),
    )
    assert record["status"] == "done"
    assert record["cost"]["participations"] == 8
    assert "samples/precision" in record["metrics"]


@pytest.mark.parametrize(
    ("dataset", "value"), [("cifar10", 25.0), ("cifar100", 150.0), ("clothing1m", 25.0)]
)
def test_published_lambda(configure, dataset, value):
    """FedCorr, appendix B, high noise."""
    config = configure("method=dividemix", f"dataset={dataset}", "scale=paper")
    assert config.method.params.lambda_u == value
    assert not config.oracle


@pytest.mark.parametrize(
    "params",
    [
        {"divide_epochs": 0}, {"warmup_batch_size": 0}, {"lambda_u": -1.0},
        {"lambda_u_ramp_fraction": 2.0}, {"threshold": -0.1}, {"temperature": 0.0},
        {"mixup_alpha": -1.0},
    ],
)  # fmt: skip
def test_invalid_parameters(params):
    with pytest.raises(
        ValueError, match=rf"^invalid method\.{next(iter(params))}=.*: expected .*$"
    ):
        build_params(DivideMixParams, params, "method")
