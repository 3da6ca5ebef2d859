"""LSG: the two forms of Eq. 5, the divergence with its clamp, the ensemble and the options."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from method_helpers import first_batch, make_task, run_local_update

from methods.core.errors import UserError
from methods.core.registry import build
from methods.lsg import LSG, LSGParams, correct_bias, divergence, sharpened_loss
from methods.toolkit.losses import js_terms, sharpen, tempered_softmax

LN3 = math.log(3)


def update(client, ctx, vector, **params):
    """Reply of a local update."""
    return run_local_update(LSG(LSGParams(**params)), client, vector, ctx)


def top(size, classes=10):
    """Logits (1, classes): `size` for class 0, 0 for the others."""
    return torch.tensor([[float(size)] + [0.0] * (classes - 1)])


def gradient(function, logits):
    logits = logits.clone().requires_grad_()
    function(logits).backward()
    return logits.grad


# Supervised loss


@pytest.mark.parametrize(
    ("size", "label", "expected"), [(100, 0, 1.4612), (100, 1, 2.4612), (0, 1, math.log(10))]
)
def test_softmax_twice_by_hand(size, label, expected):
    """A confident prediction: -log(e / (e + 9)) if right, -log(1 / (e + 9)) if wrong."""
    value = sharpened_loss(top(size), torch.tensor([label]), 0.5, "softmax_twice").item()
    assert value == pytest.approx(expected, abs=1e-4)


@given(st.lists(st.floats(-50, 50), min_size=10, max_size=10), st.integers(0, 9))
def test_softmax_twice_is_bounded(logits, label):
    labels = torch.tensor([label])
    value = sharpened_loss(torch.tensor([logits]), labels, 0.5, "softmax_twice").item()
    assert 1.4611 < value < 2.4613


@pytest.mark.parametrize(
    ("form", "expected", "rounding"),
    [
        ("softmax_twice", [0.36, 0.23, 0.11, 0.003, 0.0], 5e-3),
        ("literal", [3.6, 3.8, 3.9, 4.0, 4.0], 5e-2),
    ],
)
def test_gradient_of_a_contradicting_label(form, expected, rounding):
    """|dL/dz|_1 for label 1 when the logit of class 0 is s and the others are 0.

    p is the sharpened probability. Literal: 2 |p - e_y|_1, up to 4, twice that of cross-entropy.
    Twice: 2 (diag p - p p^T)(r - e_y) with r = softmax(p). At s = 0 this is 2 * 0.1 * (0.9 + 0.9)
    = 0.36. For confident predictions it goes to 0, so the label is ignored.
    """
    sizes, labels = (0, 1, 2, 4, 8), torch.tensor([1])
    norms, by_hand = [], []
    for s in sizes:
        found = gradient(lambda z: sharpened_loss(z, labels, 0.5, form), top(s))
        norms.append(found.abs().sum().item())
        p = (2 * top(s).double()[0]).softmax(0)
        error = (p.softmax(0) if form == "softmax_twice" else p) - torch.eye(10).double()[1]
        grad = 2 * (p * error - p * (p @ error)) if form == "softmax_twice" else 2 * error
        by_hand.append(grad.abs().sum().item())
    assert norms == pytest.approx(by_hand, abs=1e-5)
    assert norms == pytest.approx(expected, abs=rounding)


def test_sharpening_doubles_the_logits():
    logits = torch.randn(6, 10, generator=torch.Generator().manual_seed(1))
    labels, sharpened = torch.arange(6), sharpen(logits.softmax(1), 0.5)
    assert torch.allclose(sharpened, (2 * logits).softmax(1))
    expected = -sharpened.log()[torch.arange(6), labels].mean()
    assert torch.allclose(sharpened_loss(logits, labels, 0.5, "literal"), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("params", "round", "sharpens"),
    [
        ({}, 0, True),
        ({"sharpening": False}, 7, False),
        ({"sharpen_after_warmup": True}, 3, False),
        ({"sharpen_after_warmup": True}, 4, True),
    ],
)
def test_delayed_sharpening(make_client, make_ctx, initial_vector, params, round, sharpens):
    """The warm-up is half of 8 rounds."""
    method = LSG(LSGParams(warmup_fraction=0.5, distillation="none", **params))
    client = make_client(num_samples=10)
    task = make_task(client, initial_vector, make_ctx(round=round))
    models = task.load_models()
    method.start_local_update(models, task)
    batch = first_batch(client, 10, task.generator("batches"))
    method.before_epoch(0, batch.index, task)
    logits = models["model"](batch.x)
    expected = torch.nn.functional.cross_entropy(logits, batch.y)
    if sharpens:
        expected = torch.nn.functional.cross_entropy((2 * logits).softmax(1), batch.y)
    assert torch.equal(method.batch_loss(models["model"], batch, task), expected)


# Divergence


def tempered(logits):
    probabilities = tempered_softmax(logits, LSGParams().temperature)
    return probabilities, probabilities.log()


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, LN3 / 4),
        ({"kl_reduction": "batchmean"}, LN3 / 2),
        ({"distillation": "js"}, 0.130812 / 2),
        ({"distillation": "js", "kl_reduction": "batchmean"}, 0.130812),
        ({"kl_reduction": "linear"}, (math.log(0.75) * 0.75 + math.log(0.25) * 0.25 - 0.375) / 2),
    ],
)
def test_divergence_by_hand(params, expected):
    """Logits ln(3)/3 and 0 give (3/4, 1/4) at T = 1/3. Swapped logits give (1/4, 3/4).

    Per sample, KL = 3/4 ln 3 + 1/4 ln(1/3) = ln(3) / 2, JS = 3/4 ln(3/2) + 1/4 ln(1/2) = 0.1308 and
    linear 3/4 (ln 3/4 - 1/4) + 1/4 (ln 1/4 - 3/4). `mean` and `linear` divide by two classes.
    """
    student, teacher = torch.tensor([[0.0, LN3 / 3]] * 5), torch.tensor([[LN3 / 3, 0.0]] * 5)
    value = divergence(student, *tempered(teacher), LSGParams(**params)).item()
    assert value == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("reduction", ["mean", "batchmean", "linear"])
def test_divergence_gradients(reduction):
    """Without clamped entries and C = 5: (3/C)(q - p), 3 (q - p) and (3/C) q (q.p - p)."""
    rng = torch.Generator().manual_seed(3)
    student, teacher = torch.randn(1, 5, generator=rng) / 3, torch.randn(1, 5, generator=rng) / 3
    q, p = (3 * student).softmax(1), (3 * teacher).softmax(1)
    expected = {
        "mean": 3 / 5 * (q - p),
        "batchmean": 3 * (q - p),
        "linear": 3 / 5 * q * ((q * p).sum() - p),
    }
    params = LSGParams(kl_reduction=reduction)
    found = gradient(lambda z: divergence(z, *tempered(teacher), params), student)
    assert torch.allclose(found, expected[reduction], atol=1e-6)


def test_clamped_entries_have_no_gradient():
    """Student (10, 0), T = 1/3: q = (1, e^-30) is clamped to (1, 1e-6). The teacher is uniform.

    The value is (1/2 ln(1/2) + 1/2 (ln(1/2) + ln 1e6)) / 2 classes = 3.1073. The gradient is 0;
    that of a log-softmax would be 3/2 (1/2, -1/2).
    """
    logits, teacher = torch.tensor([[10.0, 0.0]]), torch.zeros(1, 2)
    value = divergence(logits, *tempered(teacher), LSGParams()).item()
    assert value == pytest.approx((math.log(0.5) + math.log(1e6) / 2) / 2, rel=1e-5)
    assert (
        gradient(lambda z: divergence(z, *tempered(teacher), LSGParams()), logits).abs().max()
        < 1e-5
    )


def test_js_is_symmetric_and_at_most_ln_2():
    first, second = torch.tensor([[0.9, 0.05, 0.05]]), torch.tensor([[0.2, 0.2, 0.6]])
    assert torch.allclose(js_terms(first, second).sum(), js_terms(second, first).sum())
    largest = js_terms(torch.tensor([[1.0, 1e-6]]), torch.tensor([[1e-6, 1.0]])).sum().item()
    assert largest == pytest.approx(math.log(2), abs=1e-4)


@pytest.mark.parametrize(
    ("warmup", "round", "expected"),
    [(0.5, 0, 0.0), (0.5, 2, 0.2), (0.5, 4, 0.4), (0.5, 7, 0.4), (0.0, 0, 0.4)],
)
def test_ramp_of_the_weight(make_client, make_ctx, initial_vector, warmup, round, expected):
    """lambda = 0.4 in a run of 8 rounds."""
    task = make_task(make_client(), initial_vector, make_ctx(round=round))
    LSG(LSGParams(lambda_=0.4, warmup_fraction=warmup)).start_local_update({}, task)
    assert task.local.weight == pytest.approx(expected)


# Ensemble


def test_bias_correction_of_constant_logits():
    """After j epochs the average of constant logits z is (1 - alpha^j) z, corrected to z."""
    logits = torch.tensor([[2.0, -1.0, 0.5]])
    ensemble = torch.zeros_like(logits)
    assert torch.equal(correct_bias(ensemble, 0.9, 0), ensemble)
    for epochs in range(1, 30):
        ensemble = 0.9 * ensemble + 0.1 * logits
        assert torch.allclose(correct_bias(ensemble, 0.9, epochs), logits, rtol=1e-5)


def test_ensemble_persists_between_local_updates(make_client, make_ctx, initial_vector):
    """With a tiny learning rate the logits z are constant: 2 updates of 3 epochs, (1 - 0.9^6) z."""
    client = make_client(num_samples=25)
    ctx = make_ctx(local_epochs=3, lr=1e-12)
    update(client, ctx, initial_vector)
    first, copy = client.state["ensemble"], client.state["ensemble"].clone()
    update(client, ctx, initial_vector)
    with torch.no_grad():
        logits = client.load_model(initial_vector)(client.images(torch.arange(25)))
    assert client.state["epochs"] == 6
    assert torch.allclose(client.state["ensemble"], (1 - 0.9**6) * logits, atol=1e-5)
    assert torch.equal(first, copy), "earlier state was changed in place"


def test_local_updates_equal_algorithm_1(make_client, make_ctx, initial_vector):
    """Algorithm 1 step by step: 2 local updates of 2 epochs with one batch each.

    The teacher is uniform in the first epoch. lambda is 5, so that the distillation has an effect.
    """
    client = make_client(num_samples=20)
    ctx = make_ctx(round=7, local_epochs=2, lr=0.1, momentum=0.0, batch_size=20)
    images, ensemble = client.images(torch.arange(20)), torch.zeros(20, 10)
    model = client.load_model(initial_vector).train()
    for epochs in range(4):
        ensemble = ensemble / (1 - 0.9**epochs) if epochs else ensemble
        model.grad.zero_()
        logits = model(images)
        q, p = (3 * logits).softmax(1), (3 * ensemble).softmax(1)
        supervised = torch.nn.functional.cross_entropy(logits, client.labels)
        (supervised + 5 * (p * (p / q).log()).sum() / 200).backward()
        model.weights.add_(model.grad, alpha=-0.1)
        ensemble = ensemble * (1 - 0.9**epochs) if epochs else ensemble
        ensemble = 0.9 * ensemble + 0.1 * logits.detach()
    vector = initial_vector
    for _ in range(2):
        vector = update(client, ctx, vector, sharpening=False, lambda_=5.0).models["model"]
    assert torch.allclose(vector, model.vector, atol=1e-6)
    assert torch.allclose(client.state["ensemble"], ensemble, atol=1e-6)


def test_ensemble_without_backpropagation(make_client, make_ctx, initial_vector):
    """Released code and lambda = 0 keep the ensemble, but train as distillation=none does."""
    ctx = make_ctx(round=7, local_epochs=2, lr=0.1)
    vectors, has_ensemble = {}, {}
    for name, params in {
        "code": {"backprop_distillation": False},
        "zero": {"lambda_": 0.0},
        "none": {"distillation": "none"},
        "full": {},
    }.items():
        client = make_client()
        vectors[name] = update(client, ctx, initial_vector, **params).models["model"]
        has_ensemble[name] = "ensemble" in client.state
    assert torch.equal(vectors["code"], vectors["none"])
    assert torch.equal(vectors["zero"], vectors["none"])
    assert not torch.equal(vectors["full"], vectors["none"])
    assert has_ensemble == {"code": True, "zero": True, "none": False, "full": True}


@pytest.mark.parametrize("labels", [[3], [4, 4, 4, 4, 4]])
def test_tiny_clients(labels, make_client, make_ctx, initial_vector):
    client = make_client(labels=labels)
    reply = update(client, make_ctx(round=7, local_epochs=2), initial_vector)
    assert torch.isfinite(reply.models["model"]).all()
    assert client.state["ensemble"].shape == (len(labels), 10)


def test_diagnosis_uses_the_ensembles(open_run):
    """The ensemble of client 2 predicts class 7. Other clients have no ensemble."""
    run = open_run("method=lsg")
    assert not run.method.diagnose(run.pool).noisy_samples
    ensemble = torch.zeros(int(run.pool.client_sizes[2]), 10)
    ensemble[:, 7] = 1.0
    run.pool.states[2] = {"ensemble": ensemble, "epochs": 1}
    diagnosis = run.method.diagnose(run.pool)
    assert list(diagnosis.labels) == [2] and (diagnosis.labels[2] == 7).all()
    assert (diagnosis.noisy_samples[2] == (run.pool.labels(2).numpy() != 7)).all()


def test_record_has_scores_of_the_diagnosis(run_small):
    record = run_small("method=lsg")
    assert record["status"] == "done" and record["oracle"] == ""
    assert {"labels/accuracy_after", "samples/recall"} <= set(record["metrics"])


def test_js_has_no_linear_form():
    message = (
        "^invalid method.kl_reduction='linear': "
        "expected mean or batchmean with method.distillation=js$"
    )
    with pytest.raises(UserError, match=message):
        build("lsg", {"distillation": "js", "kl_reduction": "linear"})
