"""LSG: the two readings of Eq. 5, the divergence with its clamp, the ensemble, the switches."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from methods.core.contract import Payload
from methods.fedavg import FedAvg
from methods.lsg import LSG, LSGParams, bias_corrected
from methods.toolkit.losses import js_terms, sharpen

LN3 = math.log(3)


def visit(client, ctx, vector, **params):
    return LSG(LSGParams(**params)).local_update(client, Payload({"model": vector}, {}), ctx)


def top(size, classes=10):
    """Logits (1, classes): class 0 has `size`, the others 0."""
    return torch.tensor([[float(size)] + [0.0] * (classes - 1)])


def gradient(function, logits):
    logits = logits.clone().requires_grad_()
    function(logits).backward()
    return logits.grad


# --- the supervised term ----------------------------------------------------------------------------------------------------------------


def test_softmax_twice_is_bounded(make_ctx):
    """p_s is a corner of the simplex at the extremes: -log(e / (e + 9)) = 1.4612 on the label, -log(1 / (e + 9)) = 2.4612 elsewhere, ln 10 at uniform."""
    loss = LSG(LSGParams()).supervised
    ctx = make_ctx()
    assert loss(top(100), torch.tensor([0]), ctx).item() == pytest.approx(1.4612, abs=1e-4)
    assert loss(top(100), torch.tensor([1]), ctx).item() == pytest.approx(2.4612, abs=1e-4)
    assert loss(top(0), torch.tensor([1]), ctx).item() == pytest.approx(math.log(10))


@given(st.lists(st.floats(-50, 50), min_size=10, max_size=10), st.integers(0, 9))
def test_softmax_twice_never_leaves_its_range(logits, label):
    value = LSG(LSGParams()).supervised(torch.tensor([logits]), torch.tensor([label]), None).item()
    assert 1.4611 < value < 2.4613


@pytest.mark.parametrize(
    ("form", "expected", "rounding"),
    [
        ("softmax_twice", [0.36, 0.23, 0.11, 0.003, 0.0], 5e-3),
        ("literal", [3.6, 3.8, 3.9, 4.0, 4.0], 5e-2),
    ],
)
def test_pull_of_a_contradicting_label(form, expected, rounding, make_ctx):
    """|dL/dz|_1 for label 1 when class 0 leads by s = 0, 1, 2, 4, 8, that is with confidence .10, .23, .45, .86, .997.

    With a = e^2s / (e^2s + 9) and b = 1 / (e^2s + 9) the sharpened probabilities. Literal: 2 |p_s - e_y|_1 = 4 (1 - b), up to 4: wrong labels
    are fitted twice as hard as by cross-entropy. Twice: 2 (diag p - p p^T)(r - e_y) with r = softmax(p). At s = 0 it is 2 * 0.1 * (0.9 + 0.9) = 0.36;
    as a goes to 1 the matrix goes to 0, and the label is ignored.
    """
    ctx = make_ctx()
    loss = LSG(LSGParams(supervised_form=form)).supervised
    norms = [
        gradient(lambda z: loss(z, torch.tensor([1]), ctx), top(s)).abs().sum().item()
        for s in (0, 1, 2, 4, 8)
    ]
    by_hand = []
    for s in (0, 1, 2, 4, 8):
        p = (2 * top(s, 10).double()[0]).softmax(0)
        wrong = (p.softmax(0) if form == "softmax_twice" else p) - torch.eye(
            10, dtype=torch.float64
        )[1]
        pulled = 2 * (p * wrong - p * (p @ wrong)) if form == "softmax_twice" else 2 * wrong
        by_hand.append(pulled.abs().sum().item())
    assert norms == pytest.approx(by_hand, abs=1e-5)
    assert norms == pytest.approx(expected, abs=rounding)


def test_sharpening_doubles_the_logits(make_ctx):
    logits = torch.randn(6, 10, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(6)
    assert torch.allclose(sharpen(logits.softmax(1), 0.5), (2 * logits).softmax(1))
    literal = LSG(LSGParams(supervised_form="literal")).supervised(logits, labels, make_ctx())
    assert literal.item() == pytest.approx(
        -sharpen(logits.softmax(1), 0.5).log()[torch.arange(6), labels].mean().item(), rel=1e-5
    )


@pytest.mark.parametrize(
    ("params", "round", "plain"),
    [
        ({}, 0, False),
        ({"sharpening": False}, 7, True),
        ({"sharpen_after_warmup": True}, 3, True),
        ({"sharpen_after_warmup": True}, 4, False),
    ],
)
def test_when_sharpening_is_on(params, round, plain, make_ctx):
    """Warm-up of half of 8 rounds ends with round 4."""
    logits, labels = top(2), torch.tensor([1])
    value = (
        LSG(LSGParams(warmup_rounds=0.5, **params))
        .supervised(logits, labels, make_ctx(round=round))
        .item()
    )
    assert (value == torch.nn.functional.cross_entropy(logits, labels).item()) == plain


# --- the divergence ---------------------------------------------------------------------------------------------------------------------


def test_divergence_values():
    """Logits ln(3)/3 and 0 give (3/4, 1/4) at T = 1/3; swapped they give (1/4, 3/4).

    KL = 3/4 ln 3 + 1/4 ln(1/3) = ln(3) / 2 = 0.5493 a sample, half of it per class; JS = 3/4 ln(3/2) + 1/4 ln(1/2) = 0.1308 a sample.
    Linear: 3/4 (ln 3/4 - 1/4) + 1/4 (ln 1/4 - 3/4), halved.
    """
    student, teacher = torch.tensor([[0.0, LN3 / 3]] * 5), torch.tensor([[LN3 / 3, 0.0]] * 5)

    def value(**params):
        return LSG(LSGParams(**params)).divergence(student, teacher).item()

    assert value() == pytest.approx(LN3 / 4, rel=1e-5)
    assert value(kl_reduction="batchmean") == pytest.approx(LN3 / 2, rel=1e-5)
    assert value(distillation="js") == pytest.approx(0.130812 / 2, rel=1e-4)
    assert value(distillation="js", kl_reduction="batchmean") == pytest.approx(0.130812, rel=1e-4)
    assert value(kl_reduction="linear") == pytest.approx(
        (0.75 * (math.log(0.75) - 0.25) + 0.25 * (math.log(0.25) - 0.75)) / 2, rel=1e-5
    )


def test_divergence_gradients():
    """Where no probability is clamped: mean (3/C)(q - p), batchmean 3 (q - p), linear (3/C) q (q.p - p), each over the batch size of 1."""
    rng = torch.Generator().manual_seed(3)
    student, teacher = torch.randn(1, 5, generator=rng) / 3, torch.randn(1, 5, generator=rng) / 3
    q, p = (3 * student).softmax(1), (3 * teacher).softmax(1)
    expected = {
        "mean": 3 / 5 * (q - p),
        "batchmean": 3 * (q - p),
        "linear": 3 / 5 * q * ((q * p).sum() - p),
    }
    for reduction, by_hand in expected.items():
        method = LSG(LSGParams(kl_reduction=reduction))
        assert torch.allclose(
            gradient(lambda z, method=method: method.divergence(z, teacher), student),
            by_hand,
            atol=1e-6,
        )


def test_the_clamp_stops_the_gradient():
    """Student (10, 0), T = 1/3: q = (1, e^-30), clamped to (1, 1e-6); the teacher is uniform.

    Value: (1/2 ln(1/2) + 1/2 (ln(1/2) + ln 1e6)) / 2 classes = 3.1073. The gradient is 0, where that of a log-softmax would be 3/2 (1/2, -1/2).
    """
    method = LSG(LSGParams())
    logits = torch.tensor([[10.0, 0.0]])
    assert method.divergence(logits, torch.zeros(1, 2)).item() == pytest.approx(
        (math.log(0.5) + math.log(1e6) / 2) / 2, rel=1e-5
    )
    assert gradient(lambda z: method.divergence(z, torch.zeros(1, 2)), logits).abs().max() < 1e-5


def test_js_is_symmetric_and_at_most_ln_2():
    first, second = torch.tensor([[0.9, 0.05, 0.05]]), torch.tensor([[0.2, 0.2, 0.6]])
    assert torch.allclose(js_terms(first, second).sum(), js_terms(second, first).sum())
    assert js_terms(
        torch.tensor([[1.0, 1e-6]]), torch.tensor([[1e-6, 1.0]])
    ).sum().item() == pytest.approx(math.log(2), abs=1e-4)


def test_warm_up_of_the_weight(make_ctx):
    """lambda 0.4, warm-up of half of 8 rounds: 0 in the first round, 0.2 half-way, 0.4 from round 4 on; without warm-up 0.4 at once."""
    method = LSG(LSGParams(lambda_=0.4, warmup_rounds=0.5))
    assert [method.distillation_weight(make_ctx(round=r)) for r in (0, 2, 4, 7)] == pytest.approx(
        [0.0, 0.2, 0.4, 0.4]
    )
    assert LSG(LSGParams(lambda_=0.4, warmup_rounds=0.0)).distillation_weight(make_ctx()) == 0.4


# --- the ensemble -----------------------------------------------------------------------------------------------------------------------


def test_bias_correction_returns_a_constant():
    """Constant logits z: after j epochs the average is (1 - alpha^j) z, so the corrected one is z for every j >= 1; before, it is 0."""
    logits = torch.tensor([[2.0, -1.0, 0.5]])
    ensemble = torch.zeros_like(logits)
    assert torch.equal(bias_corrected(ensemble, 0.9, 0), ensemble)
    for epochs in range(1, 30):
        ensemble = 0.9 * ensemble + 0.1 * logits
        assert torch.allclose(bias_corrected(ensemble, 0.9, epochs), logits, rtol=1e-5)


def test_the_ensemble_survives_visits(make_client, make_ctx, initial_vector):
    """With a vanishing step the logits stay those of the model: two visits of 3 epochs give (1 - 0.9^6) z, each sample in its own row."""
    client = make_client(num_samples=25)
    ctx = make_ctx(local_epochs=3, lr=1e-12)
    visit(client, ctx, initial_vector)
    kept, copy = client.state["ensemble"], client.state["ensemble"].clone()
    visit(client, ctx, initial_vector)
    with torch.no_grad():
        logits = client.network(initial_vector)(client.images(torch.arange(25)))
    assert client.state["epochs"] == 6
    assert torch.allclose(client.state["ensemble"], (1 - 0.9**6) * logits, atol=1e-5)
    assert torch.equal(kept, copy), "what an earlier visit left must not be written to"


def test_visits_follow_algorithm_1(make_client, make_ctx, initial_vector):
    """Algorithm 1 written out with its division and multiplication, one batch per epoch and plain SGD: 2 visits of 2 epochs with cross-entropy.

    In the first epoch the teacher is uniform; lambda is 5 so that the teacher matters.
    """
    client = make_client(num_samples=20)
    ctx = make_ctx(round=7, local_epochs=2, lr=0.1, momentum=0.0, batch_size=20)
    images, net, ensemble = (
        client.images(torch.arange(20)),
        client.network(initial_vector).train(),
        torch.zeros(20, 10),
    )
    for epochs in range(4):
        ensemble = ensemble / (1 - 0.9**epochs) if epochs else ensemble
        net.grad.zero_()
        logits = net(images)
        q, p = (3 * logits).softmax(1), (3 * ensemble).softmax(1)
        (
            torch.nn.functional.cross_entropy(logits, client.labels)
            + 5 * (p * (p / q).log()).sum() / 200
        ).backward()
        net.weights.add_(net.grad, alpha=-0.1)
        ensemble = ensemble * (1 - 0.9**epochs) if epochs else ensemble
        ensemble = 0.9 * ensemble + 0.1 * logits.detach()
    vector = initial_vector
    for _ in range(2):
        vector = visit(client, ctx, vector, sharpening=False, lambda_=5.0).models["model"]
    assert torch.allclose(vector, net.vector, atol=1e-6)
    assert torch.allclose(client.state["ensemble"], ensemble, atol=1e-6)


def test_released_code_keeps_the_ensemble_but_does_not_train_on_it(
    make_client, make_ctx, initial_vector
):
    """backprop_distillation=false, lambda=0 and distillation=none move the weights alike; only `none` keeps no ensemble; the default moves them otherwise."""
    ctx = make_ctx(round=7, local_epochs=2, lr=0.1)
    results = {}
    for name, params in {
        "code": {"backprop_distillation": False},
        "zero": {"lambda_": 0.0},
        "none": {"distillation": "none"},
        "full": {},
    }.items():
        client = make_client()
        results[name] = (
            visit(client, ctx, initial_vector, **params).models["model"],
            "ensemble" in client.state,
        )
    assert torch.equal(results["code"][0], results["none"][0]) and torch.equal(
        results["zero"][0], results["none"][0]
    )
    assert not torch.equal(results["full"][0], results["none"][0])
    assert [kept for _, kept in results.values()] == [True, True, False, True]


def test_null_parameters_are_fedavg(make_client, make_ctx, initial_vector):
    ctx = make_ctx(round=5, local_epochs=2, lr=0.1)
    expected = (
        FedAvg(None)
        .local_update(make_client(), Payload({"model": initial_vector}, {}), ctx)
        .models["model"]
    )
    assert torch.equal(
        visit(make_client(), ctx, initial_vector, **LSG.fedavg_equivalent_params).models["model"],
        expected,
    )


@pytest.mark.parametrize("labels", [[3], [4, 4, 4, 4, 4]])
def test_tiny_clients(labels, make_client, make_ctx, initial_vector):
    client = make_client(labels=labels)
    reply = visit(client, make_ctx(round=7, local_epochs=2), initial_vector)
    assert torch.isfinite(reply.models["model"]).all() and client.state["ensemble"].shape == (
        len(labels),
        10,
    )


def test_diagnosis_reads_the_ensembles(open_run):
    """Client 2's ensemble says class 7 everywhere: labels are 7, and given labels other than 7 are held to be wrong. Others are not judged."""
    run = open_run("method=lsg")
    assert not run.method.diagnosis(run.fleet).noisy_samples
    ensemble = torch.zeros(int(run.fleet.sizes[2]), 10)
    ensemble[:, 7] = 1.0
    run.fleet.states[2] = {"ensemble": ensemble, "epochs": 1}
    diagnosis = run.method.diagnosis(run.fleet)
    assert list(diagnosis.labels) == [2] and (diagnosis.labels[2] == 7).all()
    assert (diagnosis.noisy_samples[2] == (run.fleet.labels(2).numpy() != 7)).all()


def test_a_run_reports_what_the_ensembles_say(run_small):
    record = run_small("method=lsg")
    assert record["status"] == "done" and record["oracle"] == ""
    assert {"labels/accuracy_after", "samples/recall"} <= set(record["scores"])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("supervised_form", "double"), ("distillation", "mse"), ("kl_reduction", "sum"), ("ema_alpha", 1.0), ("temperature", 0.0),
        ("sharpen_temperature", -1.0), ("lambda_", -0.1), ("warmup_rounds", 1.5),
    ],
)  # fmt: skip
def test_illegal_parameters_are_named(key, value):
    with pytest.raises(ValueError, match=rf"^method\.{key}=.* is not legal; legal: "):
        LSGParams(**{key: value})


def test_linear_has_no_js_form():
    with pytest.raises(
        ValueError,
        match=r"^method\.kl_reduction='linear' is not legal with method\.distillation=js; legal: ",
    ):
        LSGParams(distillation="js", kl_reduction="linear")
