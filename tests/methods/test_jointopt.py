"""JointOpt: loss values, prediction buffer, schedule."""

import pytest
import torch
from method_helpers import run_local_update

from methods.core.params import build_params
from methods.core.task import TaskSpec
from methods.fedavg import FedAvg
from methods.jointopt import JointOpt, JointOptParams, class_prior, jointopt_loss
from methods.toolkit.losses import cross_entropy, entropy, one_hot

LOGITS = torch.tensor([[2.0, 1.0, 0.0], [0.0, 0.0, 3.0]])
SOFT = torch.tensor([[0.7, 0.2, 0.1], [0.0, 1.0, 0.0]])
UNIFORM = torch.full((3,), 1 / 3)


def update(client, ctx, vector, **params):
    return run_local_update(JointOpt(JointOptParams(**params)), client, vector, ctx)


def test_loss():
    """Values by hand: L_c = 1.951264, L_p = 1.219859, L_e = .599495.

    The softmax of the two rows is (.6652, .2447, .0900) and (.0453, .0453, .9094).
    """
    loss_c = jointopt_loss(LOGITS, SOFT, UNIFORM, 0.0, 0.0)
    loss_p = jointopt_loss(LOGITS, SOFT, UNIFORM, 1.0, 0.0) - loss_c
    loss_e = jointopt_loss(LOGITS, SOFT, UNIFORM, 0.0, 1.0) - loss_c
    assert loss_c.item() == pytest.approx(1.951264, abs=1e-6)
    assert loss_p.item() == pytest.approx(1.219859, abs=1e-6)
    assert loss_e.item() == pytest.approx(0.599495, abs=1e-6)
    assert entropy(LOGITS.softmax(1)).mean().item() == pytest.approx(0.599495, abs=1e-6)
    assert jointopt_loss(LOGITS, SOFT, UNIFORM, 1.2, 0.8).item() == pytest.approx(
        3.894691, abs=1e-6
    )


def test_loss_without_extra_terms_is_cross_entropy():
    labels = torch.tensor([0, 2])
    loss = jointopt_loss(LOGITS, one_hot(labels, 3), UNIFORM, 0.0, 0.0)
    assert torch.allclose(loss, cross_entropy(LOGITS, labels))


def test_loss_is_finite_for_confident_model():
    logits = torch.tensor([[200.0, 0.0, 0.0]], requires_grad=True)
    loss = jointopt_loss(logits, torch.tensor([0]), UNIFORM, 1.2, 0.8)
    loss.backward()
    assert torch.isfinite(loss) and torch.isfinite(logits.grad).all()


def test_prior():
    """Labels 0, 0, 2 of three classes: uniform is 1/3 each, local is (3, 1, 2) / 6."""
    labels = torch.tensor([0, 0, 2])
    assert torch.allclose(class_prior(labels, 3, "uniform"), UNIFORM)
    assert torch.allclose(class_prior(labels, 3, "local"), torch.tensor([3.0, 1.0, 2.0]) / 6)


def test_local_prior_changes_training(make_client, make_ctx, initial_vector):
    ctx = make_ctx(stage="joint", lr=0.1)
    uniform, local = (
        update(make_client(labels=[3] * 8), ctx, initial_vector, joint_epochs=1, prior=prior)
        for prior in ("uniform", "local")
    )
    assert not torch.equal(uniform.models["model"], local.models["model"])


@pytest.mark.parametrize(("epochs", "filled"), [(3, 3), (4, 4), (6, 4)])
def test_labels_are_mean_of_filled_buffer(make_client, make_ctx, initial_vector, epochs, filled):
    """A buffer of 4. After 3 epochs the empty slot is ignored, after 6 the last 4 are kept."""
    client, ctx = make_client(), make_ctx(stage="joint", lr=0.05)
    update(client, ctx, initial_vector, joint_epochs=epochs, buffer_epochs=4, min_predictions=3)
    predictions = client.state["predictions"]
    assert client.state["count"] == epochs
    assert predictions.sum((1, 2)).gt(0).sum() == filled
    assert torch.allclose(client.labels, predictions[:filled].mean(0))
    assert torch.allclose(client.labels.sum(1), torch.ones(40))
    assert client.labels.is_floating_point()


def test_buffer_keeps_newest_predictions(make_client, make_ctx, initial_vector):
    """After 5 epochs, a buffer of 2 holds the fifth and the fourth of a buffer of 5.

    Labels are not replaced, so both clients train the same model.
    """
    short, long, ctx = make_client(), make_client(), make_ctx(stage="joint", lr=0.05)
    update(short, ctx, initial_vector, joint_epochs=5, buffer_epochs=2, min_predictions=100)
    update(long, ctx, initial_vector, joint_epochs=5, buffer_epochs=5, min_predictions=100)
    assert torch.equal(short.state["predictions"], long.state["predictions"][[4, 3]])


def test_first_predictions_are_of_received_model(make_client, make_ctx, initial_vector):
    client = make_client()
    update(client, make_ctx(stage="joint", batch_size=40), initial_vector, joint_epochs=1)
    with torch.no_grad():
        expected = client.load_model(initial_vector)(client.images(torch.arange(40))).softmax(1)
    assert torch.allclose(client.state["predictions"][0], expected, atol=1e-6)


def test_labels_are_kept_until_enough_predictions(make_client, make_ctx, initial_vector):
    """The count persists between rounds: 3 + 3 epochs reach 5. The old buffer is not modified."""
    client, params = make_client(), {"joint_epochs": 3, "min_predictions": 5}
    update(client, make_ctx(stage="joint"), initial_vector, **params)
    assert client.labels is client.given_labels
    stored = client.state["predictions"]
    before = stored.clone()
    update(client, make_ctx(stage="joint", round=1), initial_vector, **params)
    assert client.state["count"] == 6
    assert client.labels.shape == (40, 10)
    assert torch.equal(stored, before)


def test_next_epoch_trains_on_replaced_labels(make_client, make_ctx, initial_vector):
    ctx = make_ctx(stage="joint", lr=0.1)
    early, late = (
        update(make_client(), ctx, initial_vector, joint_epochs=2, min_predictions=start)
        for start in (1, 2)
    )
    assert not torch.equal(early.models["model"], late.models["model"])


def test_hard_labels(make_client, make_ctx, initial_vector):
    client, ctx = make_client(), make_ctx(stage="joint")
    update(client, ctx, initial_vector, joint_epochs=2, min_predictions=2, label_type="hard")
    assert client.labels.dtype == torch.int64
    assert torch.equal(client.labels, client.state["predictions"][:2].mean(0).argmax(1))


def test_warmup_is_fedavg(make_client, make_ctx, initial_vector):
    client = make_client()
    reply = update(client, make_ctx(stage="warmup", lr=0.05), initial_vector)
    fedavg = run_local_update(FedAvg(None), make_client(), initial_vector, make_ctx(lr=0.05))
    assert torch.equal(reply.models["model"], fedavg.models["model"])
    assert client.state == {}


@pytest.mark.parametrize(
    ("dataset", "warmup", "rounds", "participations"),
    [("cifar10", 20, 100, 1000), ("cifar100", 20, 100, 500), ("clothing1m", 0, 40, 400)],
)
def test_published_schedule(configure, dataset, warmup, rounds, participations):
    """FedCorr, appendix B: 20 + 80 rounds on CIFAR, 40 rounds without warm-up on Clothing1M."""
    config = configure("method=jointopt", f"dataset={dataset}", "scale=paper")
    federation, budget = config.federation, config.budget.participations
    cohort = federation.clients_per_round
    spec = TaskSpec(dataset, (3, 32, 32), 10, federation.num_clients, cohort, budget, 1, 1)
    method = JointOpt(config.method.params)
    assert method.num_warmup_rounds(spec) == warmup
    assert method.num_rounds(spec) == rounds
    assert rounds * cohort == participations


def stages(method):
    found = []
    while (stage := method.stage(len(found))) is not None:
        found.append(stage)
    return found


def test_stages(open_run):
    """32 participations of 4 clients are 8 rounds. A fifth of 4 rounds is rounded to 1."""
    shares = (
        "method.budget_fraction=1",
        "method.warmup_fraction=0.25",
        "method.retrain_fraction=0.375",
    )
    run = open_run("method=jointopt", *shares)
    assert stages(run.method) == ["warmup"] * 2 + ["joint"] * 3 + ["retrain"] * 3
    half = open_run("method=jointopt", "method.budget_fraction=0.5", "method.warmup_fraction=0.2")
    assert stages(half.method) == ["warmup"] + ["joint"] * 3
    assert half.method.planned_participations == 16
    least = open_run("method=jointopt", "method.budget_fraction=0.01", "method.warmup_fraction=0")
    assert stages(least.method) == ["joint"]


def test_retraining_starts_once_from_new_weights(open_run):
    shares = (
        "method.budget_fraction=1",
        "method.warmup_fraction=0.25",
        "method.retrain_fraction=0.375",
    )
    run = open_run("method=jointopt", *shares)
    method, models = run.method, []
    for run.round in range(7):
        method.before_round(run.pool, [], run.context(method.stage(run.round)))
        models.append(method.state.models["model"])
    assert all(model is models[0] for model in models[:5])
    assert not torch.equal(models[5], models[0])
    assert models[6] is models[5]


def test_retraining_divides_lr_by_ten_after_each_third(make_client, make_ctx, initial_vector):
    """Rounds 2, 4 and 6 of 2 to 7 lie in different thirds. One step moves by lr * gradient."""
    params = {
        "joint_epochs": 1,
        "budget_fraction": 1.0,
        "warmup_fraction": 0.25,
        "retrain_fraction": 0.75,
    }
    steps = []
    for round in (2, 4, 6):
        client = make_client(labels=[1, 2, 3])
        ctx = make_ctx(stage="retrain", round=round, lr=0.1, momentum=0.0)
        reply = update(client, ctx, initial_vector, **params)
        steps.append((reply.models["model"] - initial_vector).norm().item())
        assert client.labels is client.given_labels and client.state == {}
    assert steps[1] / steps[0] == pytest.approx(0.1, rel=1e-2)
    assert steps[2] / steps[1] == pytest.approx(0.1, rel=1e-2)


@pytest.mark.parametrize("labels", [[3], [3, 3], [5] * 11])
def test_small_clients(make_client, make_ctx, initial_vector, labels):
    client, ctx = make_client(labels=labels), make_ctx(stage="joint")
    reply = update(client, ctx, initial_vector, joint_epochs=3, min_predictions=2)
    assert torch.isfinite(reply.models["model"]).all()
    assert torch.allclose(client.labels.sum(1), torch.ones(len(labels)))


def test_centralized_run(run_small):
    """One client has all samples. Labels are corrected, then a new model is trained on them."""
    record = run_small(
        *("method=jointopt", "partition=centralized", "budget.participations=4"),
        *("federation.num_clients=1", "federation.clients_per_round=1", "train.batch_size=128"),
        *("method.budget_fraction=1", "method.warmup_fraction=0", "method.retrain_fraction=0.5"),
        *("method.joint_epochs=1", "method.min_predictions=1"),
    )
    assert record["status"] == "done"
    assert record["cost"]["participations"] == 4
    assert "labels/accuracy_after" in record["metrics"]


@pytest.mark.parametrize(
    "params",
    [
        {"budget_fraction": 0.0}, {"warmup_fraction": 1.5}, {"joint_epochs": 0}, {"alpha": -1.0},
        {"buffer_epochs": 0}, {"min_predictions": 0}, {"label_type": "both"}, {"prior": "global"},
        {"retrain_fraction": 0.9},
    ],
)  # fmt: skip
def test_invalid_parameters(params):
    with pytest.raises(
        ValueError, match=rf"^invalid method\.{next(iter(params))}=.*: expected .*$"
    ):
        build_params(JointOptParams, params, "method")
