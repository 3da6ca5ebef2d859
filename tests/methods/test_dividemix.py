"""DivideMix: the parts of its loss, the division, and who is trained on whose division."""

import numpy as np
import pytest
import torch
from torch import nn

from methods import dividemix
from methods.core import training
from methods.core.contract import Payload, TaskSpec
from methods.core.flat_model import FlatModel
from methods.dividemix import (
    DivideMix,
    DivideMixParams,
    clean_probability,
    mixmatch_loss,
    uniform_penalty,
)
from methods.fedavg import FedAvg
from methods.toolkit.losses import sharpen

LOGITS = torch.tensor([[2.0, 1.0, 0.0], [0.0, 0.0, 3.0]])
TARGETS = torch.tensor([[0.7, 0.2, 0.1], [0.0, 1.0, 0.0]])


@pytest.fixture
def vectors(initial_vector):
    """Two networks that differ."""
    noise = torch.randn(len(initial_vector), generator=torch.Generator().manual_seed(1))
    return {"a": initial_vector, "b": initial_vector + 0.1 * noise}


def visit(client, ctx, vectors, **params):
    return DivideMix(DivideMixParams(**{"divide_epochs": 1, **params})).local_update(
        client, Payload(vectors, {}), ctx
    )


# --- the loss --------------------------------------------------------------------------------------------------------------------


def test_sharpening():
    assert torch.allclose(
        sharpen(torch.tensor([[0.35526, 0.145003, 0.499737]]), 0.5),
        torch.tensor([[0.31793, 0.052966, 0.629104]]),
        atol=1e-6,
    )


def test_penalty():
    """The mean of the two softmaxes is (.3553, .1450, .4997), whose divergence from uniform is .121247; 0 for a uniform mean."""
    assert uniform_penalty(LOGITS.softmax(1).mean(0)).item() == pytest.approx(0.121247, abs=1e-6)
    assert uniform_penalty(torch.full((7,), 1 / 7)).item() == pytest.approx(0.0, abs=1e-6)


def test_unlabelled_loss():
    """Squared error over rows and classes: .290656. Two rows are labelled, two not; only this term depends on the weight."""
    losses = [
        mixmatch_loss(torch.cat([LOGITS, LOGITS]), torch.cat([TARGETS, TARGETS]), 2, weight)
        for weight in (0.0, 1.0, 25.0)
    ]
    assert (losses[1] - losses[0]).item() == pytest.approx(0.290656, abs=1e-6)
    assert (losses[2] - losses[0]).item() == pytest.approx(25 * 0.290656, abs=1e-4)


def test_labelled_loss():
    """Cross-entropy with the soft targets is 1.951264 (see JointOpt's L_c); with all rows labelled the penalty is all that is added."""
    assert mixmatch_loss(LOGITS, TARGETS, 2, 25.0).item() == pytest.approx(
        1.951264 + 0.121247, abs=1e-6
    )


def test_one_step_of_mixmatch(make_client, make_ctx, vectors):
    """Digits are not augmented, so both views are the image; with mixup_alpha=0 nothing is mixed and the loss can be written down.

    Labelled target: sharpen(w y + (1 - w) p_a); unlabelled: sharpen((p_a + p_b) / 2); Lx + lambda Lu + penalty over all four parts.
    """
    client, ctx = make_client(num_samples=6), make_ctx(stage="divide", round=8)
    a, b = client.network(vectors["a"]), client.network(vectors["b"])
    clean = torch.tensor([0.9, 0.6, 1.0, 0.2, 0.1, 0.4])
    method = DivideMix(
        DivideMixParams(
            mixup_alpha=0.0, lambda_u=3.0, lambda_u_ramp=0.0, budget_share=1.0, warmup_share=0.0
        )
    )
    trainer = training.Trainer(client, [a, b], ctx)
    loss = method._mix_loss(
        trainer, a, b, clean, torch.tensor([3, 4, 5]), ctx.rng("dividemix", 0), ctx
    )
    batch = next(
        client.batches(
            3, "train", ctx.generator("x"), ctx.generator("y"), subset=torch.tensor([0, 1, 2])
        )
    )
    value = loss(batch).item()

    with torch.no_grad():
        images = client.images(torch.arange(6))
        p_a, p_b = (net(images).softmax(1).double().numpy() for net in (a, b))

    def sharp(p):
        return p**2 / (p**2).sum(1, keepdims=True)

    w = clean.double().numpy()[:3, None]
    target_x = sharp(w * np.eye(10)[client.given[:3].numpy()] + (1 - w) * p_a[:3])
    target_u = sharp((p_a[3:] + p_b[3:]) / 2)
    labelled = -(target_x * np.log(p_a[:3])).sum(1).mean()
    unlabelled = ((p_a[3:] - target_u) ** 2).mean()
    penalty = np.mean(np.log(0.1 / p_a.mean(0)))
    assert value == pytest.approx(labelled + 3.0 * unlabelled + penalty, abs=1e-5)


def test_mixing_keeps_the_larger_share_and_all_parts(make_client, make_ctx, vectors, monkeypatch):
    """Inputs are x1, x2, u1, u2; the share of a row's own image is at least a half; partners are a permutation of all rows."""
    seen = []
    mix = dividemix.mixup.mix
    monkeypatch.setattr(
        dividemix.mixup,
        "mix",
        lambda x, y, share, partners: (
            seen.append((x, y, share, partners)) or mix(x, y, share, partners)
        ),
    )
    monkeypatch.setattr(
        dividemix, "divide", lambda client, nets, rng: [torch.tensor([1.0] * 8 + [0.0] * 5)] * 2
    )
    visit(make_client(num_samples=13), make_ctx(stage="divide", round=8, batch_size=4), vectors)
    assert [len(x) for x, *_ in seen] == [
        16,
        10,
    ] * 2  # 8 labelled in batches of 4; 5 unlabelled in batches of 4 and 1
    for x, y, share, partners in seen:
        assert 0.5 <= share <= 1
        assert sorted(partners.tolist()) == list(range(len(x)))
        assert torch.allclose(y.sum(1), torch.ones(len(y)))


# --- the division ----------------------------------------------------------------------------------------------------------------


def test_clean_probability():
    """Two groups far apart: the low one is clean. Scaling and shifting the losses changes nothing."""
    losses = torch.cat([torch.linspace(0.1, 0.3, 20), torch.linspace(3.0, 3.3, 10)])
    clean = clean_probability(losses, 0)
    assert (clean[:20] > 0.99).all() and (clean[20:] < 0.01).all()
    assert torch.allclose(clean_probability(losses * 7 + 2, 0), clean, atol=1e-4)


@pytest.mark.parametrize("losses", [[1.5], [0.7] * 5, [float("nan"), 1.0], [float("inf"), 1.0]])
def test_nothing_to_divide(losses):
    assert torch.equal(clean_probability(torch.tensor(losses), 0), torch.ones(len(losses)))


def test_division_follows_the_networks_losses(make_client, make_ctx, initial_vector):
    """A network taught the true labels finds the ones that were changed afterwards."""
    teacher = make_client(num_samples=200)
    vector = (
        FedAvg(None)
        .local_update(
            teacher, Payload({"model": initial_vector}, {}), make_ctx(local_epochs=20, lr=0.05)
        )
        .models["model"]
    )
    labels = teacher.given.clone()
    labels[::5] = (labels[::5] + 1) % 10
    client = make_client(labels=labels.numpy())
    (clean,) = dividemix.divide(client, (client.network(vector),), np.random.default_rng(0))
    wrong = torch.zeros(200, dtype=torch.bool)
    wrong[::5] = True
    assert (clean[wrong] <= 0.5).float().mean() > 0.9
    assert (clean[~wrong] > 0.5).float().mean() > 0.9


def spy(monkeypatch):
    """Records, for every epoch, which network was trained on which samples, and how far each network moved."""
    epochs = []
    epoch = training.Trainer.epoch

    def recorded(self, batch_loss, number=0, *, nets=None, subset=None, **rest):
        before = [net.vector.clone() for net in self.optimizers]
        epoch(self, batch_loss, number, nets=nets, subset=subset, **rest)
        moved = [
            not torch.equal(net.vector, old)
            for net, old in zip(self.optimizers, before, strict=True)
        ]
        epochs.append(
            (
                list(self.optimizers).index(nets[0]),
                None if subset is None else subset.tolist(),
                moved,
            )
        )

    monkeypatch.setattr(training.Trainer, "epoch", recorded)
    return epochs


def test_each_network_is_trained_on_the_others_division(
    make_client, make_ctx, vectors, monkeypatch
):
    """a holds 0..3 to be clean, b holds 6..9: a learns 6..9 while b rests, then b learns 0..3 while a rests. Kept is a's verdict."""
    clean_a, clean_b = torch.tensor([1.0] * 4 + [0.0] * 6), torch.tensor([0.0] * 6 + [1.0] * 4)
    monkeypatch.setattr(dividemix, "divide", lambda client, nets, rng: [clean_a, clean_b])
    epochs = spy(monkeypatch)
    client = make_client(num_samples=10)
    visit(client, make_ctx(stage="divide", round=8), vectors, divide_epochs=2)
    assert epochs == [(0, [6, 7, 8, 9], [True, False]), (1, [0, 1, 2, 3], [False, True])] * 2
    assert client.state["doubtful"].tolist() == [False] * 4 + [True] * 6
    assert client.labels is client.given


@pytest.mark.parametrize("num_clean", [0, 1])
def test_without_labelled_samples_it_is_cross_entropy(
    make_client, make_ctx, vectors, monkeypatch, num_clean
):
    """Fewer than two labelled samples: both networks make an epoch of FedAvg. The order of b's batches differs, as it comes second."""
    monkeypatch.setattr(
        dividemix,
        "divide",
        lambda client, nets, rng: [torch.tensor([1.0] * num_clean + [0.0] * (12 - num_clean))] * 2,
    )
    plain = FedAvg(None).local_update(
        make_client(num_samples=12), Payload({"model": vectors["a"]}, {}), make_ctx(round=8)
    )
    epochs = spy(monkeypatch)
    reply = visit(make_client(num_samples=12), make_ctx(stage="divide", round=8), vectors)
    assert epochs == [(0, None, [True, False]), (1, None, [False, True])]
    assert torch.equal(reply.models["a"], plain.models["model"])


def test_without_unlabelled_samples_the_labelled_are_mixed(
    make_client, make_ctx, vectors, monkeypatch
):
    monkeypatch.setattr(dividemix, "divide", lambda client, nets, rng: [torch.ones(12)] * 2)
    replies = [
        visit(
            make_client(num_samples=12), make_ctx(stage="divide", round=8), vectors, lambda_u=weight
        )
        for weight in (0.0, 100.0)
    ]
    for name in ("a", "b"):
        assert torch.isfinite(replies[0].models[name]).all()
        assert torch.equal(replies[0].models[name], replies[1].models[name])
        assert not torch.equal(replies[0].models[name], vectors[name])


@pytest.mark.parametrize("labels", [[3], [3, 4], [5] * 11])
def test_tiny_clients(make_client, make_ctx, vectors, labels):
    client = make_client(labels=labels)
    reply = visit(client, make_ctx(stage="divide", round=8), vectors, divide_epochs=3)
    assert all(torch.isfinite(vector).all() for vector in reply.models.values())
    assert client.state["doubtful"].shape == (len(labels),)


# --- around it -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("round", "expected"), [(20, 0.0), (28, 0.5), (36, 1.0), (99, 1.0)])
def test_ramp(make_ctx, round, expected):
    """20 rounds of warm-up, then 80: the ramp takes 0.2 * 80 = 16 rounds, so 0, 1/2, 1 after 0, 8, 16 of them."""
    ctx = make_ctx(stage="divide", round=round)
    spec = TaskSpec("cifar10", (3, 32, 32), 10, 100, 10, 10000, 512, 1)
    ctx = type(ctx)(ctx.seed, ctx.round, ctx.stage, spec, ctx.train)
    assert DivideMix(DivideMixParams()).unlabelled_ramp(ctx) == pytest.approx(expected)


def test_warm_up_is_fedavg_on_both_with_its_own_batch_size(make_client, make_ctx, vectors):
    client = make_client()
    reply = visit(client, make_ctx(stage="warmup"), vectors, warmup_batch_size=16)
    for name, vector in vectors.items():
        plain = FedAvg(None).local_update(
            make_client(), Payload({"model": vector}, {}), make_ctx(batch_size=16)
        )
        assert torch.equal(reply.models[name], plain.models["model"])
    assert client.state == {}


def test_prediction_adds_logits():
    """Logits (3, 0) and (-1, 0) add up to (2, 0): class 0. Mean probabilities would say .9526 and .2689, also 0, but another number."""
    nets = {}
    for name, value in (("a", 3.0), ("b", -1.0)):
        nets[name] = FlatModel(nn.Linear(1, 2, bias=False)).load(torch.tensor([value, 0.0]))
    predicted = DivideMix(DivideMixParams()).predict(nets, torch.ones(1, 1))
    assert torch.allclose(predicted, torch.tensor([[1.0, 0.0]]).softmax(1))


def test_oracle_is_declared():
    assert DivideMix(DivideMixParams()).oracle() == ""
    assert (
        "lambda_u=0.0" in DivideMix(DivideMixParams(lambda_u=0.0, lambda_u_is_oracle=True)).oracle()
    )


def test_run(run_small):
    record = run_small(
        "method=dividemix",
        "method.budget_share=0.25",
        "method.warmup_share=0.5",
        "method.divide_epochs=1",
        "train.batch_size=32",
    )
    assert record["status"] == "done"
    assert record["cost"]["participations"] == 8
    assert "samples/precision" in record["scores"]


@pytest.mark.parametrize(
    ("dataset", "value"), [("cifar10", 25.0), ("cifar100", 150.0), ("clothing1m", 25.0)]
)
def test_published_lambda(configure, dataset, value):
    """FedCorr, appendix B, high noise."""
    config = configure("method=dividemix", f"dataset={dataset}", "scale=paper")
    assert config.method.params.lambda_u == value
    assert not config.method.params.lambda_u_is_oracle


@pytest.mark.parametrize(
    "params",
    [
        {"divide_epochs": 0},
        {"warmup_batch_size": 0},
        {"lambda_u": -1.0},
        {"lambda_u_ramp": 2.0},
        {"threshold": -0.1},
        {"temperature": 0.0},
    ],
)
def test_illegal_parameters(params):
    with pytest.raises(
        ValueError, match=rf"^method\.{next(iter(params))}=.* is not legal; legal: .*$"
    ):
        DivideMixParams(**params)
