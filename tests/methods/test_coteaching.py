"""Co-teaching: selection by the other model, forget rate and client state."""

import pytest
import torch
from method_helpers import run_local_update

from methods.coteaching import Coteaching, CoteachingParams, smallest_loss_indices
from methods.fedavg import FedAvg


@pytest.fixture
def two_vectors(initial_vector):
    noise = torch.randn(len(initial_vector), generator=torch.Generator().manual_seed(9))
    return {"a": initial_vector, "b": initial_vector + 0.05 * noise}


def update(client, ctx, vectors, **params):
    """Both parameter vectors after a local update."""
    return run_local_update(Coteaching(CoteachingParams(**params)), client, vectors, ctx).models


def test_smallest_losses_by_hand():
    """40 % of 5 losses are dropped. Of equal losses, the first is kept. One is always kept."""
    losses = torch.tensor([0.5, 0.1, 0.9, 0.1, 0.7])
    assert smallest_loss_indices(losses, 0.4).tolist() == [1, 3, 0]
    assert smallest_loss_indices(losses, 0.0).tolist() == [1, 3, 0, 4, 2]
    assert smallest_loss_indices(torch.tensor([3.0]), 0.9).tolist() == [0]


def test_each_model_trains_on_the_selection_of_the_other(make_client, make_ctx, two_vectors):
    """One SGD step with half of the batch dropped."""
    client = make_client(num_samples=20)
    ctx = make_ctx(round=7, lr=0.1, momentum=0.0, batch_size=20)
    found = update(client, ctx, two_vectors, forget_rate=0.5)
    x = client.images(torch.arange(20))
    models = {name: client.load_model(vector).train() for name, vector in two_vectors.items()}
    losses = {
        name: torch.nn.functional.cross_entropy(model(x), client.labels, reduction="none")
        for name, model in models.items()
    }
    selected = {
        name: values.detach().topk(10, largest=False).indices for name, values in losses.items()
    }
    assert set(selected["a"].tolist()) != set(selected["b"].tolist())
    losses["a"][selected["b"]].mean().backward()
    losses["b"][selected["a"]].mean().backward()
    for name, model in models.items():
        assert torch.allclose(found[name], two_vectors[name] - 0.1 * model.grad, atol=1e-6)
    assert client.state["picked"].nonzero()[:, 0].tolist() == sorted(selected["a"].tolist())


def test_forget_rate_zero_trains_both_models_as_fedavg(make_client, make_ctx, two_vectors):
    """The mean over samples has another order, so the results are equal up to rounding."""
    ctx = make_ctx(round=7, local_epochs=2)
    found = update(make_client(), ctx, two_vectors, forget_rate=0.0)
    for name, vector in two_vectors.items():
        fedavg = run_local_update(FedAvg(None), make_client(), vector, ctx).models["model"]
        assert torch.allclose(found[name], fedavg, atol=1e-5)


def test_first_round_selects_all_samples(make_client, make_ctx, two_vectors):
    client = make_client()
    update(client, make_ctx(round=0), two_vectors, forget_rate=0.7, ramp_fraction=0.5)
    assert client.state["picked"].all()


def test_selection_of_the_last_epoch_is_stored(make_client, make_ctx, two_vectors):
    """40 samples in batches of 10, 30 % dropped: 28 are selected in each epoch."""
    client = make_client()
    update(client, make_ctx(round=7, local_epochs=3), two_vectors, forget_rate=0.3)
    assert client.state["picked"].sum() == 28


@pytest.mark.parametrize("labels", [[3], [4] * 11])
def test_tiny_clients(labels, make_client, make_ctx, two_vectors):
    """With 11 samples the last batch has one sample."""
    found = update(make_client(labels=labels), make_ctx(round=7), two_vectors, forget_rate=0.9)
    assert all(torch.isfinite(vector).all() for vector in found.values())


def test_two_models_are_kept_and_the_first_is_evaluated(open_run):
    method = open_run("method=coteaching").method
    models, evaluated = method.state.models, method.eval_models()
    assert set(models) == {"a", "b"} and not torch.equal(models["a"], models["b"])
    assert list(evaluated) == ["a"] and torch.equal(evaluated["a"], models["a"])


def test_diagnosis_uses_the_selection(open_run):
    run = open_run("method=coteaching")
    run.pool.states[3] = {"picked": torch.arange(int(run.pool.client_sizes[3])) > 1}
    noisy = run.method.diagnose(run.pool).noisy_samples
    assert list(noisy) == [3] and noisy[3].nonzero()[0].tolist() == [0, 1]


def test_true_noise_rate_is_marked_as_oracle(run_small):
    """`${noise...}` marks the record; a plain value does not."""
    record = run_small("method=coteaching", "method.forget_rate=${noise.rho}", "noise.rho=0.4")
    assert record["status"] == "done"
    assert record["oracle"] == "method.forget_rate=0.4 chosen with the true noise"
    assert record["config"]["oracle"] == ["method.forget_rate"]
    assert "samples/recall" in record["metrics"]


def test_other_forget_rate_is_not_marked(configure):
    assert configure("method=coteaching", "method.forget_rate=0.4").oracle == ()
