"""Fed-CNML: parameters, schedule, server side and whole runs."""

import csv
import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import methods.fedcnml.method
from methods.core.flat_model import FlatModel
from methods.core.params import build_params
from methods.core.task import RoundContext, TaskSpec, TrainParams
from methods.fedcnml.method import FedCNML
from methods.fedcnml.params import FedCNMLParams, learning_rate
from methods.fedcnml.scoring import divergence_cutoff, jensen_shannon

FAST = ("method=fedcnml", "method.scoring_epochs=1")


def make_spec(participations=3600, num_clients=100, cohort=10):
    return TaskSpec("digits", (1, 8, 8), 10, num_clients, cohort, participations, 64, 1000)


# Parameters and schedule


def stages(params, spec):
    method = FedCNML(params)
    method.spec = spec
    method.validate(spec)
    found = []
    while (stage := method.stage(len(found))) is not None:
        found.append(stage)
    return found


def test_published_schedule():
    """100 + 350 x 10 participations: one scoring round, 25 of warm-up, 325 of federation."""
    expected = ["scoring"] + ["warmup"] * 25 + ["federation"] * 325
    assert stages(FedCNMLParams(), make_spec()) == expected


@given(
    st.integers(2, 60),
    st.integers(1, 20),
    st.integers(0, 500),
    st.sampled_from(["none", "c1", "c2"]),
)
def test_budget_is_kept(num_clients, cohort, extra, ablation):
    cohort, scoring = min(cohort, num_clients), ablation != "c1"
    spec = make_spec(scoring * num_clients + 2 * cohort + extra, num_clients, cohort)
    found = stages(FedCNMLParams(ablation=ablation), spec)
    spent = num_clients * scoring + cohort * (len(found) - scoring)
    assert spec.participations - cohort < spent <= spec.participations
    assert found.count("scoring") == scoring
    assert found.count("warmup") >= 1 and found.count("federation") >= 1


@pytest.mark.parametrize(
    ("rounds", "steps"),
    [
        (350, {0: 0.02, 119: 0.02, 120: 0.002, 239: 0.002, 240: 0.0002, 349: 0.0002}),
        (35, {0: 0.02, 11: 0.02, 12: 0.002, 23: 0.002, 24: 0.0002, 34: 0.0002}),
    ],
)
def test_learning_rate_steps(rounds, steps):
    """Decay by 0.1 after 120 and 240 of 350 rounds. The scoring round does not count."""

    def rate(round, participations, **params):
        ctx = RoundContext(1, round, "any", make_spec(participations), TrainParams(lr=0.02))
        return learning_rate(FedCNMLParams(**params), ctx)

    for round, expected in steps.items():
        assert rate(1 + round, 100 + rounds * 10) == pytest.approx(expected)
        assert rate(round, rounds * 10, ablation="c1") == pytest.approx(expected)
    assert rate(0, 100 + rounds * 10) == pytest.approx(0.02)


def test_validation_of_budget():
    with pytest.raises(ValueError, match=r"budget.participations=119: .* = 120"):
        FedCNML(FedCNMLParams()).validate(make_spec(119))
    FedCNML(FedCNMLParams(ablation="c1")).validate(make_spec(119))
    with pytest.raises(ValueError, match=r"budget.participations=19: .* = 20"):
        FedCNML(FedCNMLParams(mu2=0)).validate(make_spec(19))
    with pytest.raises(ValueError, match="federation.num_clients=1:"):
        FedCNML(FedCNMLParams()).validate(make_spec(100, 1, 1))


@pytest.mark.parametrize(
    "params",
    [
        {"ablation": "c4"}, {"tau1": 0.5}, {"mu2": -1}, {"temperature": 0.0}, {"warmup": 350},
        {"view": "plain"}, {"margin": float("nan")}, {"decay": 2.0}, {"statistics": "none"},
    ],
)  # fmt: skip
def test_invalid_parameters(params):
    with pytest.raises(ValueError, match=rf"^invalid method\.{next(iter(params))}=.*: expected "):
        build_params(FedCNMLParams, params, "method")


# Server side


def advance(run):
    """One round, as in the round loop."""
    method, pool = run.method, run.pool
    ctx = run.context(method.stage(run.round))
    ids = method.select_clients(pool, ctx)
    method.before_round(pool, ids, ctx)
    replies = pool.run_task(ids, method.local_update, method.payload, ctx, participation=True)
    method.aggregate(replies, ctx)
    method.after_round(pool, ctx)
    run.round += 1
    return ids, replies


def predict(run, vector, client_id):
    """Class probabilities of a model for the samples of a client."""
    model = FlatModel(run.executor.context.build_module()).eval().load(vector)
    images = run.dataset.train.fetch(torch.from_numpy(run.scenario.client_indices[client_id]))
    with torch.no_grad():
        return model(run.dataset.views(images, "plain", None)).softmax(1)


def test_scores_are_accuracies_on_labels_of_others(open_run):
    run = open_run(*FAST)
    _, replies = advance(run)
    vectors = [reply.models["a"] for reply in replies]
    run.method.state.scored_models = vectors
    scores = run.method._mutual_scores(run.pool, run.context("scoring"))
    assert np.isnan(np.diagonal(scores)).all()
    for p, q in ((0, 1), (1, 0), (7, 3)):
        correct = predict(run, vectors[q], p).argmax(1) == run.pool.labels(p)
        assert scores[p, q] == pytest.approx(correct.double().mean().item())


@pytest.mark.parametrize("samples", [0, 20])
def test_scores_do_not_depend_on_models_per_call(open_run, monkeypatch, samples):
    run = open_run(*FAST, f"method.scoring_samples={samples}")
    method, pool, ctx = run.method, run.pool, run.context("scoring")
    vectors = [pool.initial_weights(i) for i in range(8)]
    method.state.scored_models = vectors
    scores = method._mutual_scores(pool, ctx)
    assert pool.meter.samples_scored == (8 * samples or pool.client_sizes.sum())
    for models_per_call in (1, 3):
        limit = models_per_call * vectors[0].numel() * 4 + 1
        monkeypatch.setattr(methods.fedcnml.method, "MAX_MODEL_BYTES_PER_CALL", limit)
        before = pool.meter.models_down
        in_parts = method._mutual_scores(pool, ctx)
        assert np.array_equal(in_parts, scores, equal_nan=True)
        assert pool.meter.models_down - before == 8 * 7


def test_scoring_does_not_change_global_models(open_run):
    run = open_run(*FAST)
    method, pool = run.method, run.pool
    ids, _ = advance(run)
    assert list(ids) == list(range(8))
    for i, name in enumerate("ab"):
        assert torch.equal(method.state.models[name], pool.initial_weights(i))
    clean, diagnosis = method.state.clean, method.diagnose(pool)
    assert method.state.scored_models == []
    assert len(clean) >= 4
    assert sorted([*diagnosis.noisy_clients, *clean]) == list(range(8))
    assert np.array_equal(diagnosis.client_scores, -method.state.eta)
    ids, _ = advance(run)
    assert set(ids) <= set(clean)
    assert method.diagnose(pool).arrays == {}


@pytest.mark.parametrize("statistics", ["merged", "full"])
def test_cutoffs_use_reported_divergences(open_run, statistics):
    run = open_run(*FAST, f"method.statistics={statistics}")
    advance(run), advance(run)
    vectors = list(run.method.state.models.values())
    ids, _ = advance(run)
    reporting = ids if statistics == "merged" else range(8)
    assert np.flatnonzero(run.method.state.counts).tolist() == list(reporting)
    for i, vector in enumerate(vectors):
        divergences = torch.cat(
            [
                jensen_shannon(predict(run, vector, k).gather(1, run.pool.labels(k)[:, None]))
                for k in reporting
            ]
        ).numpy()
        expected = divergence_cutoff(divergences.mean(), divergences.min(), 5.0, 0.7)
        cutoff = run.method.state.shared["cutoffs"][i]
        assert cutoff == pytest.approx(float(expected), rel=1e-6)
    assert all(set(run.pool.state(k)) == {"noisy"} for k in ids)


# Whole runs


def test_cost_of_run(run_small):
    """8 clients, cohorts of 4, 20 participations: scoring 8, warm-up 4, federation 2 x 4.

    Down: 8 initial models, 8 x 7 to score, then 2 for each of 12 participations. Up: 8 scored
    models and 2 x 12. Queries: 8 for scoring and 8 for divergences.
    """
    record = run_small(*FAST, "budget.participations=20")
    cost = record["cost"]
    assert record["status"] == "done"
    assert (cost["participations"], cost["queries"]) == (20, 16)
    assert (cost["models_down"], cost["models_up"]) == (8 + 56 + 24, 8 + 24)
    journal = (record["run_dir"] / "journal.jsonl").read_text().splitlines()
    assert [json.loads(line)["stage"] for line in journal] == ["scoring"]
    method_scores = {f"method/{name}" for name in ("cutoff_a", "cutoff_b", "triplet_active")}
    assert method_scores | {"clients/auroc", "samples/recall"} <= set(record["metrics"])


def test_ablations(run_small):
    """The smallest budget: two rounds of 4 clients, and 8 participations for scoring."""
    runs = {
        name: run_small(*FAST, f"method.ablation={name}", f"budget.participations={budget}")
        for name, budget in (("c1", 8), ("c2", 16), ("c3", 16))
    }
    assert all(record["status"] == "done" for record in runs.values())
    models_up = {name: record["cost"]["models_up"] for name, record in runs.items()}
    assert models_up == {"c1": 16, "c2": 8 + 8, "c3": 8 + 16}

    def runs_with(score):
        return [name for name, record in runs.items() if score in record["metrics"]]

    assert runs_with("clients/f1") == ["c2", "c3"]
    assert runs_with("method/cutoff_b") == ["c1", "c3"]
    assert runs_with("method/triplet_active") == ["c1"]


def test_mu2_of_zero_equals_c1(run_small):
    """Table 2 of the paper: with mu2 = 0 all clients participate from the start."""
    curves = []
    for override in ("method.mu2=0", "method.ablation=c1"):
        record = run_small(*FAST, override, "budget.participations=8")
        with open(record["run_dir"] / "curve.csv", newline="") as file:
            curves.append([(row["accuracy"], row["loss"]) for row in csv.DictReader(file)])
    assert curves[0] == curves[1]
    assert len(curves[0]) == 2
