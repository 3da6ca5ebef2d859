"""JointOpt: loss values, the buffer of predictions, the plan of rounds."""

import pytest
import torch

from methods.core.contract import Payload
from methods.fedavg import FedAvg
from methods.jointopt import JointOpt, JointOptParams, class_prior, joint_loss
from methods.toolkit.losses import cross_entropy, entropy, one_hot

LOGITS = torch.tensor([[2.0, 1.0, 0.0], [0.0, 0.0, 3.0]])
SOFT = torch.tensor([[0.7, 0.2, 0.1], [0.0, 1.0, 0.0]])
UNIFORM = torch.full((3,), 1 / 3)


def visit(client, ctx, vector, **params):
    return JointOpt(JointOptParams(**params)).local_update(
        client, Payload({"model": vector}, {}), ctx
    )


def test_loss():
    """softmax gives (.6652, .2447, .0900) and (.0453, .0453, .9094); L_c = 1.951264, L_p = 1.219859, L_e = .599495."""
    assert joint_loss(LOGITS, SOFT, UNIFORM, 0.0, 0.0).item() == pytest.approx(1.951264, abs=1e-6)
    assert (
        joint_loss(LOGITS, SOFT, UNIFORM, 1.0, 0.0) - joint_loss(LOGITS, SOFT, UNIFORM, 0.0, 0.0)
    ).item() == pytest.approx(1.219859, abs=1e-6)
    assert entropy(LOGITS.softmax(1)).mean().item() == pytest.approx(0.599495, abs=1e-6)
    assert joint_loss(LOGITS, SOFT, UNIFORM, 1.2, 0.8).item() == pytest.approx(3.894691, abs=1e-6)


def test_loss_without_its_terms_is_cross_entropy():
    labels = torch.tensor([0, 2])
    assert torch.allclose(
        joint_loss(LOGITS, one_hot(labels, 3), UNIFORM, 0.0, 0.0), cross_entropy(LOGITS, labels)
    )


def test_loss_is_finite_for_a_network_that_is_sure():
    logits = torch.tensor([[200.0, 0.0, 0.0]], requires_grad=True)
    loss = joint_loss(logits, torch.tensor([0]), UNIFORM, 1.2, 0.8)
    loss.backward()
    assert torch.isfinite(loss) and torch.isfinite(logits.grad).all()


def test_prior():
    """Labels 0, 0, 2 of three classes: uniform thirds; with one added to each class (3, 1, 2) / 6."""
    labels = torch.tensor([0, 0, 2])
    assert torch.allclose(class_prior(labels, 3, "uniform"), UNIFORM)
    assert torch.allclose(class_prior(labels, 3, "local"), torch.tensor([3.0, 1.0, 2.0]) / 6)


def test_prior_is_that_of_the_given_labels(make_client, make_ctx, initial_vector):
    """On one class the two priors differ, and so do the weights."""
    ctx = make_ctx(stage="joint", lr=0.1)
    uniform, local = (
        visit(make_client(labels=[3] * 8), ctx, initial_vector, joint_epochs=1, prior=prior)
        for prior in ("uniform", "local")
    )
    assert not torch.equal(uniform.models["model"], local.models["model"])


@pytest.mark.parametrize(("epochs", "filled"), [(3, 3), (4, 4), (6, 4)])
def test_labels_are_the_mean_of_the_filled_buffer(
    make_client, make_ctx, initial_vector, epochs, filled
):
    """A buffer of 4: after 3 epochs the fourth slot is empty and takes no part, so rows sum to 1; after 6 epochs the last 4 remain."""
    client = make_client()
    visit(
        client,
        make_ctx(stage="joint", lr=0.05),
        initial_vector,
        joint_epochs=epochs,
        buffer=4,
        start_after=3,
    )
    predictions = client.state["predictions"]
    assert client.state["count"] == epochs
    assert predictions.sum((1, 2)).gt(0).sum() == filled
    assert torch.allclose(client.labels, predictions[:filled].mean(0))
    assert torch.allclose(client.labels.sum(1), torch.ones(40))
    assert client.labels.is_floating_point()


def test_ring_buffer_keeps_the_newest(make_client, make_ctx, initial_vector):
    """The same epochs with a long buffer show which predictions a buffer of 2 must hold after 5 epochs: the fifth and the fourth.

    Labels are not replaced here, so both runs train alike.
    """
    short, long = make_client(), make_client()
    ctx = make_ctx(stage="joint", lr=0.05)
    visit(short, ctx, initial_vector, joint_epochs=5, buffer=2, start_after=100)
    visit(long, ctx, initial_vector, joint_epochs=5, buffer=5, start_after=100)
    assert torch.equal(short.state["predictions"], long.state["predictions"][[4, 3]])


def test_first_predictions_are_those_of_the_received_model(make_client, make_ctx, initial_vector):
    client = make_client()
    visit(client, make_ctx(stage="joint", batch_size=40), initial_vector, joint_epochs=1)
    with torch.no_grad():
        expected = client.network(initial_vector)(client.images(torch.arange(40))).softmax(1)
    assert torch.allclose(client.state["predictions"][0], expected, atol=1e-6)


def test_labels_are_kept_until_there_are_enough_predictions(make_client, make_ctx, initial_vector):
    """The count goes on from visit to visit: 3 + 3 epochs reach 5, and the buffer of the first visit is left as it was."""
    client = make_client()
    visit(client, make_ctx(stage="joint"), initial_vector, joint_epochs=3, start_after=5)
    assert client.labels is client.given
    held = client.state["predictions"]
    before = held.clone()
    visit(client, make_ctx(stage="joint", round=1), initial_vector, joint_epochs=3, start_after=5)
    assert client.state["count"] == 6
    assert client.labels.shape == (40, 10)
    assert torch.equal(held, before)


def test_replaced_labels_are_trained_on(make_client, make_ctx, initial_vector):
    """Labels replaced after the first epoch change what the second one learns."""
    ctx = make_ctx(stage="joint", lr=0.1)
    early, late = (
        visit(make_client(), ctx, initial_vector, joint_epochs=2, start_after=start).models["model"]
        for start in (1, 2)
    )
    assert not torch.equal(early, late)


def test_hard_labels(make_client, make_ctx, initial_vector):
    client = make_client()
    visit(
        client,
        make_ctx(stage="joint"),
        initial_vector,
        joint_epochs=2,
        start_after=2,
        labels="hard",
    )
    assert client.labels.dtype == torch.int64
    assert torch.equal(client.labels, client.state["predictions"][:2].mean(0).argmax(1))


def test_warm_up_is_fedavg(make_client, make_ctx, initial_vector):
    client = make_client()
    reply = visit(client, make_ctx(stage="warmup", lr=0.05), initial_vector)
    plain = FedAvg(None).local_update(
        make_client(), Payload({"model": initial_vector}, {}), make_ctx(lr=0.05)
    )
    assert torch.equal(reply.models["model"], plain.models["model"])
    assert client.state == {}


@pytest.mark.parametrize(
    ("dataset", "warmup", "rounds", "participations"),
    [("cifar10", 20, 100, 1000), ("cifar100", 20, 100, 500), ("clothing1m", 0, 40, 400)],
)
def test_published_plan(configure, dataset, warmup, rounds, participations):
    """FedCorr, appendix B: 20 + 80 rounds on CIFAR with 10 and 5 clients, 40 rounds on Clothing1M without a warm-up."""
    from methods.core.contract import TaskSpec

    config = configure("method=jointopt", f"dataset={dataset}", "scale=paper")
    m = config.federation.clients_per_round
    spec = TaskSpec(
        dataset,
        (3, 32, 32),
        10,
        config.federation.num_clients,
        m,
        config.budget.participations,
        1,
        1,
    )
    method = JointOpt(config.method.params)
    assert (method.num_warmup(spec), method.num_rounds(spec), method.num_rounds(spec) * m) == (
        warmup,
        rounds,
        participations,
    )


def stages(method):
    found, round = [], 0
    while (stage := method.stage(round)) is not None:
        found.append(stage)
        round += 1
    return found


def test_stages(open_run):
    """32 participations of 4 clients are 8 rounds: a quarter warm-up, the last 3/8 retraining. A fifth of 4 rounds is 1, to the nearest."""
    shares = ("method.budget_share=1", "method.warmup_share=0.25", "method.retrain_share=0.375")
    run = open_run("method=jointopt", *shares)
    assert stages(run.method) == ["warmup"] * 2 + ["joint"] * 3 + ["retrain"] * 3
    half = open_run("method=jointopt", "method.budget_share=0.5", "method.warmup_share=0.2")
    assert stages(half.method) == ["warmup"] + ["joint"] * 3
    assert half.method.planned_participations == 16
    least = open_run("method=jointopt", "method.budget_share=0.01", "method.warmup_share=0")
    assert stages(least.method) == ["joint"]


def test_retraining_starts_once_from_new_weights(open_run):
    run = open_run(
        "method=jointopt",
        "method.budget_share=1",
        "method.warmup_share=0.25",
        "method.retrain_share=0.375",
    )
    method, before = run.method, run.method.models["model"]
    for run.round in range(5):
        method.before_round(run.fleet, [], run.context(method.stage(run.round)))
        assert method.models["model"] is before
    run.round = 5
    method.before_round(run.fleet, [], run.context("retrain"))
    fresh = method.models["model"]
    assert not torch.equal(fresh, before)
    run.round = 6
    method.before_round(run.fleet, [], run.context("retrain"))
    assert method.models["model"] is fresh


def test_retraining_divides_the_learning_rate_after_each_third(
    make_client, make_ctx, initial_vector
):
    """Rounds 2, 4 and 6 of 2..7 lie in the first, second and third third. One step on one batch: the change is proportional to lr."""
    steps = []
    for round in (2, 4, 6):
        client = make_client(labels=[1, 2, 3])
        ctx = make_ctx(stage="retrain", round=round, lr=0.1, momentum=0.0)
        reply = visit(
            client,
            ctx,
            initial_vector,
            joint_epochs=1,
            budget_share=1.0,
            warmup_share=0.25,
            retrain_share=0.75,
        )
        steps.append((reply.models["model"] - initial_vector).norm().item())
        assert client.labels is client.given and client.state == {}
    assert steps[1] / steps[0] == pytest.approx(0.1, rel=1e-2)
    assert steps[2] / steps[1] == pytest.approx(0.1, rel=1e-2)


@pytest.mark.parametrize("labels", [[3], [3, 3], [5] * 11])
def test_tiny_clients(make_client, make_ctx, initial_vector, labels):
    client = make_client(labels=labels)
    reply = visit(client, make_ctx(stage="joint"), initial_vector, joint_epochs=3, start_after=2)
    assert torch.isfinite(reply.models["model"]).all()
    assert torch.allclose(client.labels.sum(1), torch.ones(len(labels)))


def test_centralized_run(run_small):
    """One client holds everything; labels are learnt, then a new network is trained on them."""
    record = run_small(
        "method=jointopt", "partition=centralized", "federation.num_clients=1", "federation.clients_per_round=1", "budget.participations=4",
        "method.budget_share=1", "method.warmup_share=0", "method.joint_epochs=1", "method.start_after=1", "method.retrain_share=0.5", "train.batch_size=128",
    )  # fmt: skip
    assert record["status"] == "done"
    assert record["cost"]["participations"] == 4
    assert "labels/accuracy_after" in record["scores"]


@pytest.mark.parametrize(
    "params",
    [
        {"budget_share": 0.0}, {"warmup_share": 1.5}, {"joint_epochs": 0}, {"alpha": -1.0}, {"buffer": 0}, {"start_after": 0},
        {"labels": "both"}, {"prior": "global"}, {"retrain_share": 0.9},
    ],
)  # fmt: skip
def test_illegal_parameters(params):
    with pytest.raises(
        ValueError, match=rf"^method\.{next(iter(params))}=.* is not legal; legal: .*$"
    ):
        JointOptParams(**params)
