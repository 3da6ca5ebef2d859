"""Co-teaching: who picks for whom, how many, and what happens without forgetting."""

import pytest
import torch

from methods.core.contract import Payload
from methods.coteaching import Coteaching, CoteachingParams, smallest_loss_indices
from methods.fedavg import FedAvg


@pytest.fixture
def two_vectors(initial_vector):
    noise = torch.randn(len(initial_vector), generator=torch.Generator().manual_seed(9))
    return {"a": initial_vector, "b": initial_vector + 0.05 * noise}


def visit(client, ctx, vectors, **params):
    return (
        Coteaching(CoteachingParams(**params))
        .local_update(client, Payload(vectors, {}), ctx)
        .models
    )


def test_the_easiest_of_a_batch():
    """Of 5 losses 40 % are left out: 3 stay; equal losses in order; of one sample one stays whatever the rate."""
    losses = torch.tensor([0.5, 0.1, 0.9, 0.1, 0.7])
    assert smallest_loss_indices(losses, 0.4).tolist() == [1, 3, 0]
    assert smallest_loss_indices(losses, 0.0).tolist() == [1, 3, 0, 4, 2]
    assert smallest_loss_indices(torch.tensor([3.0]), 0.9).tolist() == [0]


def test_each_network_learns_what_the_other_finds_easy(make_client, make_ctx, two_vectors):
    """One batch of plain SGD, half left out: network a steps along the mean cross-entropy of b's 10 smallest_loss_indices samples, b along that of a's."""
    client = make_client(num_samples=20)
    moved = visit(
        client, make_ctx(round=7, lr=0.1, momentum=0.0, batch_size=20), two_vectors, forget_rate=0.5
    )
    x = client.images(torch.arange(20))
    nets = {name: client.network(vector).train() for name, vector in two_vectors.items()}
    losses = {
        name: torch.nn.functional.cross_entropy(net(x), client.labels, reduction="none")
        for name, net in nets.items()
    }
    picks = {
        name: values.detach().topk(10, largest=False).indices for name, values in losses.items()
    }
    assert set(picks["a"].tolist()) != set(picks["b"].tolist()), "otherwise nothing is tested"
    losses["a"][picks["b"]].mean().backward()
    losses["b"][picks["a"]].mean().backward()
    for name, net in nets.items():
        assert torch.allclose(moved[name], two_vectors[name] - 0.1 * net.grad, atol=1e-6)
    assert client.state["picked"].nonzero()[:, 0].tolist() == sorted(picks["a"].tolist())


def test_without_forgetting_both_are_plain(make_client, make_ctx, two_vectors):
    """tau = 0: each network is trained as FedAvg trains one (the sum runs over another order of the samples)."""
    ctx = make_ctx(round=7, local_epochs=2)
    moved = visit(make_client(), ctx, two_vectors, forget_rate=0.0)
    for name, vector in two_vectors.items():
        plain = (
            FedAvg(None)
            .local_update(make_client(), Payload({"model": vector}, {}), ctx)
            .models["model"]
        )
        assert torch.allclose(moved[name], plain, atol=1e-5)


def test_first_round_picks_everything(make_client, make_ctx, two_vectors):
    client = make_client()
    visit(client, make_ctx(round=0), two_vectors, forget_rate=0.7, ramp_rounds=0.5)
    assert client.state["picked"].all()


def test_picks_of_the_last_epoch_are_kept(make_client, make_ctx, two_vectors):
    """40 samples in batches of 10 with 30 % left out: 28 are picked, whatever the number of epochs."""
    client = make_client()
    visit(client, make_ctx(round=7, local_epochs=3), two_vectors, forget_rate=0.3)
    assert client.state["picked"].sum() == 28


@pytest.mark.parametrize("labels", [[3], [4] * 11])
def test_tiny_clients(labels, make_client, make_ctx, two_vectors):
    """11 samples in batches of 10: the last batch has one sample, and it is kept."""
    moved = visit(make_client(labels=labels), make_ctx(round=7), two_vectors, forget_rate=0.9)
    assert all(torch.isfinite(vector).all() for vector in moved.values())


def test_two_models_are_kept_and_the_first_is_served(open_run):
    run = open_run("method=coteaching")
    assert set(run.method.models) == {"a", "b"} and not torch.equal(
        run.method.models["a"], run.method.models["b"]
    )
    assert list(run.method.serving()) == ["a"] and torch.equal(
        run.method.serving()["a"], run.method.models["a"]
    )
    run.fleet.states[3] = {"picked": torch.arange(int(run.fleet.sizes[3])) > 1}
    noisy = run.method.diagnosis(run.fleet).noisy_samples
    assert list(noisy) == [3] and noisy[3].nonzero()[0].tolist() == [0, 1]


def test_a_run_says_when_the_rate_is_an_oracle(run_small):
    record = run_small(
        "method=coteaching", "method.forget_rate=0.4", "method.forget_rate_is_oracle=true"
    )
    assert (
        record["status"] == "done" and record["oracle"] == "forget_rate=0.4 is the true noise rate"
    )
    assert "samples/recall" in record["scores"]
    assert Coteaching(CoteachingParams()).oracle() == ""


@pytest.mark.parametrize(
    ("key", "value"), [("forget_rate", 1.0), ("forget_rate", -0.1), ("ramp_rounds", 1.5)]
)
def test_illegal_parameters_are_named(key, value):
    with pytest.raises(ValueError, match=rf"^method\.{key}={value} is not legal; legal: "):
        CoteachingParams(**{key: value})
