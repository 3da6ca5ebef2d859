"""Fed-CNML against numbers derived by hand, and its stages on real clients."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import methods.fedcnml.method
from methods.core.contract import Payload, TaskSpec, TrainParams
from methods.core.flat_model import FlatModel
from methods.fedcnml.method import FedCNML, FedCNMLParams
from methods.fedcnml.scoring import (
    binarise,
    choose_clean,
    cutoff,
    jensen_shannon,
    sample_weights,
    triplet,
)
from methods.toolkit.losses import cross_entropy

FAST = ("method=fedcnml", "method.scoring_epochs=1")


def make_spec(participations=3600, num_clients=100, clients_per_round=10):
    return TaskSpec(
        "digits", (1, 8, 8), 10, num_clients, clients_per_round, participations, 64, 1000
    )


def advance(run):
    """One round, as the runner does it."""
    method, fleet = run.method, run.fleet
    ctx = run.context(method.stage(run.round))
    ids = method.select(fleet, ctx)
    method.before_round(fleet, ids, ctx)
    replies = fleet.ask(ids, method.local_update, method.payload, ctx, participation=True)
    method.aggregate(replies, ctx)
    method.after_round(fleet, ctx)
    run.round += 1
    return ids, replies


# --- divergences and cut-offs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "expected"),
    [
        (1.0, 0.0),
        (0.9, 0.0519),
        (0.7, 0.1692),
        (0.5, 0.3113),
        (0.3, 0.4934),
        (0.1, 0.7583),
        (0.01, 0.9595),
        (0.0, 1.0),
    ],
)
def test_divergence_values(a, expected):
    assert jensen_shannon(torch.tensor([a])).item() == pytest.approx(expected, abs=5e-5)


@given(st.lists(st.floats(0.001, 1.0), min_size=2, max_size=12), st.integers(0, 11))
def test_divergence_is_the_definition(masses, label):
    """JSD(y, p) = KL(y | m) / 2 + KL(p | m) / 2 with m = (y + p) / 2, base 2."""
    p = np.array(masses) / np.sum(masses)
    y = np.zeros(len(p))
    y[label % len(p)] = 1
    m = (y + p) / 2
    direct = 0.5 * np.sum(y[y > 0] * np.log2(y[y > 0] / m[y > 0])) + 0.5 * np.sum(
        p * np.log2(p / m)
    )
    assert jensen_shannon(torch.tensor([p[label % len(p)]])).item() == pytest.approx(
        direct, abs=1e-9
    )


def test_cutoff():
    """Below J_u = 0.7 the mean; from it on, 0.8 - (0.8 - 0.1) / 5 = 0.66 and 0.7 - (0.7 - 0.2) / 5 = 0.6."""
    values = cutoff(np.array([0.69, 0.8, 0.7]), np.array([0.0, 0.1, 0.2]), tau2=5.0, jsd_limit=0.7)
    assert values == pytest.approx([0.69, 0.66, 0.6])


# --- mutual scoring -------------------------------------------------------------------------------------------------------------------

SCORES = np.array([[np.nan, 0.6, 0.3], [0.8, np.nan, 0.2], [0.7, 0.5, np.nan]])  # [data, model]


@pytest.mark.parametrize(
    ("tau1", "threshold", "eta"),
    [(1.0, 3.1 / 6, [2, 1, 0]), (2.0, 0.8 - (0.8 - 3.1 / 6) / 2, [2, 0, 0]), (1e9, 0.8, [1, 0, 0])],
)
def test_threshold_and_neighbours(tau1, threshold, eta):
    """Off the diagonal: maximum 0.8, mean 3.1 / 6. Model 0 scores 0.8 and 0.7, model 1 scores 0.6 and 0.5, model 2 scores 0.3 and 0.2."""
    found_threshold, found_eta = binarise(SCORES, tau1)
    assert found_threshold == pytest.approx(threshold)
    assert found_eta.tolist() == eta


@pytest.mark.parametrize("diagonal", [0.0, 1.0])
def test_own_data_takes_no_part(diagonal):
    scores = SCORES.copy()
    np.fill_diagonal(scores, diagonal)
    assert binarise(scores, 2.0)[0] == binarise(SCORES, 2.0)[0]
    assert binarise(scores, 2.0)[1].tolist() == [2, 0, 0]


@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3, 1.0])
def test_equal_scores_make_everybody_clean(value):
    _, eta = binarise(np.full((7, 7), value), 2.0)
    assert eta.tolist() == [6] * 7
    assert choose_clean(eta, np.full(7, value), mu2=1, least=3).tolist() == list(range(7))


def test_clean_clients():
    eta, received = np.array([3, 0, 1, 1, 4]), np.array([0.1, 0.9, 0.2, 0.3, 0.1])
    assert choose_clean(eta, received, mu2=0, least=1).tolist() == [0, 2, 3, 4]
    assert choose_clean(eta, received, mu2=1, least=1).tolist() == [0, 4]
    assert choose_clean(eta, received, mu2=1, least=3).tolist() == [
        0,
        3,
        4,
    ]  # 3 before 2: same eta, better received
    assert choose_clean(np.zeros(5, dtype=int), received, mu2=1, least=2).tolist() == [
        1,
        3,
    ]  # nobody clean
    assert choose_clean(np.zeros(5, dtype=int), np.zeros(5), mu2=1, least=2).tolist() == [0, 1]


def test_scores_are_accuracies_on_the_others_labels(open_run):
    run = open_run(*FAST)
    _, replies = advance(run)
    models = [reply.models["a"] for reply in replies]
    scores = run.method._mutual_scores(run.fleet, models, run.context("scoring"))
    assert np.isnan(np.diagonal(scores)).all()
    net = FlatModel(run.executor._workshop.build_module()).eval()
    for data, model in ((0, 1), (1, 0), (7, 3)):
        index = torch.from_numpy(run.scenario.client_indices[data])
        x = run.dataset.views(run.dataset.train.fetch(index), "plain", None)
        with torch.no_grad():
            right = net.load(models[model])(x).argmax(1) == run.fleet.labels(data)
        assert scores[data, model] == pytest.approx(right.double().mean().item())


@pytest.mark.parametrize("samples", [0, 20])
def test_scoring_in_parts_changes_nothing(open_run, monkeypatch, samples):
    run = open_run(*FAST, f"method.scoring_samples={samples}")
    models = [run.fleet.initial_weights(index) for index in range(8)]
    whole = run.method._mutual_scores(run.fleet, models, run.context("scoring"))
    scored = run.fleet.meter.samples_scored
    assert scored == (8 * samples or run.fleet.sizes.sum())
    for at_once in (1, 3):
        monkeypatch.setattr(
            methods.fedcnml.method, "SCORING_BYTES", at_once * models[0].numel() * 4 + 1
        )
        before = run.fleet.meter.models_down
        assert np.array_equal(
            run.method._mutual_scores(run.fleet, models, run.context("scoring")),
            whole,
            equal_nan=True,
        )
        assert run.fleet.meter.models_down - before == 8 * 7


# --- the loss -------------------------------------------------------------------------------------------------------------------------


def test_triplet_by_hand():
    """|Y - own|^2 - |Y - other|^2 = 9 - 1 = 8 with gradient 2 (other - own) = (8, 0); nearer to its own network: 1 - 9 < 0, nothing."""
    own, other = torch.zeros(2, 2), torch.tensor([[4.0, 0.0], [4.0, 0.0]])
    logits = torch.tensor([[3.0, 0.0], [1.0, 0.0]], requires_grad=True)
    hinge = triplet(logits, own, other, margin=0.0)
    assert hinge.tolist() == [8.0, 0.0]
    hinge.sum().backward()
    assert logits.grad.tolist() == [[8.0, 0.0], [0.0, 0.0]]
    assert triplet(logits, own, other, margin=10.0).tolist() == [18.0, 2.0]


def test_means_over_subsets_and_batch():
    """Losses 1, 2, 3 (clean) and 10 (noisy): 2 + 10 = 12 as two means, 16 / 4 = 4 as one."""
    losses, noisy = torch.tensor([1.0, 2.0, 10.0, 3.0]), torch.tensor([False, False, True, False])
    assert (sample_weights(noisy, "subsets") * losses).sum().item() == pytest.approx(12)
    assert (sample_weights(noisy, "batch") * losses).sum().item() == pytest.approx(4)
    for empty in (torch.zeros(4, dtype=torch.bool), torch.ones(4, dtype=torch.bool)):
        assert (sample_weights(empty, "subsets") * losses).sum().item() == pytest.approx(4)


def prepared(method, client, ctx, *vectors):
    """The client after the measuring that precedes its training."""
    nets = dict(zip(("a", "b"), vectors, strict=False))
    reply = method.measure(client, Payload(nets, {"trains": True}), ctx)
    return reply, client


def federate(method, client, ctx, *cutoffs):
    return method.local_update(client, Payload({}, {"cutoffs": np.array(cutoffs)}), ctx)


@pytest.fixture
def two_vectors(open_run):
    run = open_run(*FAST)
    return run.fleet.initial_weights(0), run.fleet.initial_weights(1)


@pytest.mark.parametrize("labels", [None, [3], [3, 3, 3], list(range(10)) * 2])
def test_measured_divergences(make_client, make_ctx, two_vectors, labels):
    ctx, client = make_ctx(1, "federation"), make_client(labels)
    method = FedCNML(FedCNMLParams())
    reply, client = prepared(method, client, ctx, *two_vectors)
    for number, vector in enumerate(two_vectors):
        with torch.no_grad():
            p = (
                client.network(vector)
                .eval()(client.images(torch.arange(client.num_samples)))
                .softmax(1)
            )
        divergences = jensen_shannon(p[torch.arange(client.num_samples), client.labels])
        assert reply.values["sums"][number] == pytest.approx(divergences.sum().item(), rel=1e-5)
        assert reply.values["minima"][number] == pytest.approx(divergences.min().item(), rel=1e-5)
    trained = federate(method, client, ctx, *reply.values["sums"] / client.num_samples)
    assert all(torch.isfinite(vector).all() for vector in trained.models.values())
    assert set(client.state) == {"noisy"}


def test_networks_judge_for_each_other(make_client, make_ctx, two_vectors):
    """A finds sample 0 doubtful, B sample 1: net A is trained with sample 1 as noisy, which is what the client remembers."""
    ctx, client = make_ctx(1, "federation"), make_client([1, 2])
    method = FedCNML(FedCNMLParams())
    prepared(method, client, ctx, *two_vectors)
    client.state["divergences"] = torch.tensor([[0.9, 0.1], [0.1, 0.9]], dtype=torch.float64)
    federate(method, client, ctx, 0.5, 0.5)
    assert client.state["noisy"].tolist() == [False, True]


def test_a_tie_at_the_cutoff_is_clean(make_client, make_ctx, two_vectors):
    ctx, client = make_ctx(1, "federation"), make_client([4] * 7)
    method = FedCNML(FedCNMLParams())
    prepared(method, client, ctx, *two_vectors)
    client.state["divergences"] = torch.full((2, 7), 0.1, dtype=torch.float64)
    federate(method, client, ctx, *[sum([0.1] * 7) / 7] * 2)
    assert not client.state["noisy"].any()


@pytest.mark.parametrize("mean_over", ["subsets", "batch"])
def test_all_clean_is_plain_training(make_client, make_ctx, two_vectors, mean_over):
    """With nothing held noisy the loss is the cross-entropy of both networks, as in the warm-up of the same round."""
    method = FedCNML(FedCNMLParams(view="train", mean_over=mean_over))
    _, client = prepared(method, make_client(), make_ctx(1, "federation"), *two_vectors)
    judged = federate(method, client, make_ctx(1, "federation"), 2.0, 2.0)
    plain = method.local_update(
        make_client(), Payload(dict(zip("ab", two_vectors, strict=True)), {}), make_ctx(1, "warmup")
    )
    assert judged.values == {"judged": 0, "active": 0}
    for name in "ab":
        assert torch.allclose(judged.models[name], plain.models[name], atol=1e-6)
        assert not torch.equal(judged.models[name], two_vectors["ab".index(name)])


def test_all_noisy_learns_pseudo_labels(make_client, make_ctx, two_vectors):
    """The given labels no longer matter: two clients with the same images and other labels train the same networks."""
    method = FedCNML(FedCNMLParams(view="train"))
    trained = []
    for labels in (list(range(10)), list(range(10))[::-1]):
        _, client = prepared(method, make_client(labels), make_ctx(1, "federation"), *two_vectors)
        trained.append(federate(method, client, make_ctx(1, "federation"), -1.0, -1.0))
        assert client.state["noisy"].all()
        assert trained[-1].values["judged"] == 20
    assert torch.equal(trained[0].models["a"], trained[1].models["a"])


def test_pseudo_labels_are_the_sharpened_mean(make_client, make_ctx, two_vectors):
    """p^(1/T) / sum with T = 0.5 of the mean of both networks' probabilities."""
    _, client = prepared(
        FedCNML(FedCNMLParams()), make_client(), make_ctx(1, "federation"), *two_vectors
    )
    with torch.no_grad():
        x = client.images(torch.arange(client.num_samples))
        mean = sum(client.network(vector).eval()(x).softmax(1) for vector in two_vectors) / 2
    assert torch.allclose(
        client.state["pseudo"], mean**2 / (mean**2).sum(1, keepdim=True), atol=1e-6
    )


def test_triplet_sleeps_until_a_network_has_drifted(make_client, make_ctx, two_vectors):
    """At the first step Y = Y_own, so the hinge is max(0, -|Y_own - Y_other|^2) = 0. A step too small to move keeps it there; a margin wakes it."""
    ctx = make_ctx(1, "federation", lr=1e-30)
    active = {}
    for margin in (0.0, 1e3):
        method = FedCNML(FedCNMLParams(margin=margin))
        _, client = prepared(method, make_client(), ctx, *two_vectors)
        values = federate(method, client, ctx, -1.0, -1.0).values
        active[margin] = values["active"] / values["judged"]
    assert active == {0.0: 0.0, 1e3: 1.0}


def test_ensemble_averages_probabilities():
    """Probabilities (0.9, 0.1) and (0.2, 0.8) average to (0.55, 0.45); averaged logits would answer the second class."""
    nets = {}
    for name, p in (("a", [0.9, 0.1]), ("b", [0.2, 0.8])):
        nets[name] = FlatModel(nn.Linear(1, 2)).load(
            torch.cat([torch.zeros(2), torch.tensor(p).log()])
        )
    mean = FedCNML(FedCNMLParams()).predict(nets, torch.zeros(1, 1))
    assert torch.allclose(mean, torch.tensor([[0.55, 0.45]]))


# --- stages ---------------------------------------------------------------------------------------------------------------------------


def staged(params, spec):
    method = FedCNML(params)
    method.spec = spec
    method.check(spec)
    stages = []
    while (stage := method.stage(len(stages))) is not None:
        stages.append(stage)
    return stages


def test_the_papers_schedule():
    """100 + 350 x 10 visits: one scoring round, 25 of warm-up, 325 of federation."""
    stages = staged(FedCNMLParams(), make_spec())
    assert [stages.count(name) for name in ("scoring", "warmup", "federation")] == [1, 25, 325]
    assert stages == sorted(stages, key=["scoring", "warmup", "federation"].index)


@given(
    st.integers(2, 60),
    st.integers(1, 20),
    st.integers(0, 500),
    st.sampled_from(["none", "c1", "c2"]),
)
def test_budget_is_kept(num_clients, cohort, extra, ablation):
    cohort = min(cohort, num_clients)
    spec = make_spec((ablation != "c1") * num_clients + 2 * cohort + extra, num_clients, cohort)
    stages = staged(FedCNMLParams(ablation=ablation), spec)
    spent = num_clients * stages.count("scoring") + cohort * (len(stages) - stages.count("scoring"))
    assert spec.participations - cohort < spent <= spec.participations
    assert stages.count("warmup") >= 1
    assert stages.count("federation") >= 1
    assert stages.count("scoring") == (ablation != "c1")


def test_learning_rate_steps(make_ctx):
    """350 rounds after the scoring round: x 0.1 at rounds 120 and 240. At a tenth of the rounds, at 12 and 24."""
    from methods.core.contract import RoundContext

    def rate(round, spec, **params):
        return FedCNML(FedCNMLParams(**params)).learning_rate(
            RoundContext(1, round, "any", spec, TrainParams(lr=0.02))
        )

    for t, expected in (
        (0, 0.02),
        (119, 0.02),
        (120, 0.002),
        (239, 0.002),
        (240, 0.0002),
        (349, 0.0002),
    ):
        assert rate(1 + t, make_spec()) == pytest.approx(expected)
    for t, expected in ((11, 0.02), (12, 0.002), (23, 0.002), (24, 0.0002), (34, 0.0002)):
        assert rate(1 + t, make_spec(100 + 35 * 10)) == pytest.approx(expected)
    assert rate(0, make_spec()) == pytest.approx(0.02)
    assert rate(120, make_spec(3500), ablation="c1") == pytest.approx(0.002)


def test_too_small_a_budget_is_refused():
    with pytest.raises(ValueError, match="budget.participations=119 .* = 120"):
        FedCNML(FedCNMLParams()).check(make_spec(119))
    FedCNML(FedCNMLParams(ablation="c1")).check(make_spec(119))
    with pytest.raises(ValueError, match="budget.participations=19 .* = 20"):
        FedCNML(FedCNMLParams(mu2=0)).check(make_spec(19))
    with pytest.raises(ValueError, match="federation.num_clients=1 "):
        FedCNML(FedCNMLParams()).check(make_spec(100, 1, 1))


@pytest.mark.parametrize(
    "wrong",
    [
        {"ablation": "c4"},
        {"tau1": 0.5},
        {"mu2": -1},
        {"temperature": 0.0},
        {"warmup": 350},
        {"view": "plain"},
        {"margin": float("nan")},
    ],
)
def test_illegal_parameters(wrong):
    with pytest.raises(ValueError, match=rf"method\.{next(iter(wrong))}=.* is not legal; legal: "):
        FedCNMLParams(**wrong)


def test_cost_of_a_run(run_small):
    """8 clients, cohorts of 4, 20 visits: scoring 8, warm-up 4, federation 2 x 4.

    Down: 8 starts, 8 x 7 models to score, then 2 networks for each of 12 visits. Up: 8 scored models and 2 x 12. Visits that only measure: 8 + 8.
    """
    record = run_small(*FAST, "budget.participations=20")
    cost = record["cost"]
    assert record["status"] == "done"
    assert (cost["participations"], cost["contacts"]) == (20, 16)
    assert (cost["models_down"], cost["models_up"]) == (8 + 56 + 24, 8 + 24)
    entries = [
        json.loads(line) for line in (record["folder"] / "journal.jsonl").read_text().splitlines()
    ]
    assert [entry["stage"] for entry in entries] == ["scoring"]
    assert {
        "clients/auroc",
        "samples/recall",
        "method/cutoff_a",
        "method/cutoff_b",
        "method/triplet_active",
    } <= set(record["scores"])


def test_scoring_leaves_the_global_networks_alone(open_run):
    run = open_run(*FAST)
    ids, _ = advance(run)
    assert list(ids) == list(range(8))
    assert all(
        torch.equal(run.method.models[name], run.fleet.initial_weights(number))
        for number, name in enumerate("ab")
    )
    assert "scored" not in run.method._private
    state, diagnosis = run.method._private, run.method.diagnosis(run.fleet)
    assert len(state["clean"]) >= 4
    assert sorted([*diagnosis.noisy_clients, *state["clean"]]) == list(range(8))
    assert np.array_equal(diagnosis.client_scores, -state["eta"])
    ids, _ = advance(run)
    assert set(ids) <= set(state["clean"])
    assert run.method.diagnosis(run.fleet).arrays == {}


@pytest.mark.parametrize(("statistics", "known"), [("merged", 4), ("full", 8)])
def test_cutoffs_come_from_the_reported_divergences(open_run, statistics, known):
    run = open_run(*FAST, f"method.statistics={statistics}")
    advance(run), advance(run)
    vectors = list(run.method.models.values())
    ids, _ = advance(run)
    reported = ids if statistics == "merged" else range(8)
    assert (run.method._private["counts"] > 0).sum() == known
    net = FlatModel(run.executor._workshop.build_module()).eval()
    for number, vector in enumerate(vectors):
        parts = []
        for k in reported:
            x = run.dataset.views(
                run.dataset.train.fetch(torch.from_numpy(run.scenario.client_indices[k])),
                "plain",
                None,
            )
            with torch.no_grad():
                p = net.load(vector)(x).softmax(1)
            parts.append(jensen_shannon(p.gather(1, run.fleet.labels(k)[:, None]).squeeze(1)))
        together = torch.cat(parts)
        expected = cutoff(together.mean().numpy(), together.min().numpy(), 5.0, 0.7)
        assert run.method.shared["cutoffs"][number] == pytest.approx(float(expected), rel=1e-6)
    assert all(set(run.fleet.state(k)) == {"noisy"} for k in ids)


def test_ablations(run_small):
    """The least budget: two rounds of 4 clients, and 8 visits for scoring where there is any."""
    runs = {
        name: run_small(
            *FAST, f"method.ablation={name}", f"budget.participations={8 if name == 'c1' else 16}"
        )
        for name in ("c1", "c2", "c3")
    }
    assert all(record["status"] == "done" for record in runs.values())
    assert [name for name, record in runs.items() if "clients/f1" in record["scores"]] == [
        "c2",
        "c3",
    ]
    assert runs["c1"]["cost"]["models_up"] == 16  # two networks from each visit, none for scoring
    assert runs["c2"]["cost"]["models_up"] == 8 + 8  # one network from each visit
    assert runs["c3"]["cost"]["models_up"] == 8 + 16
    assert "method/cutoff_b" not in runs["c2"]["scores"]
    assert [
        name for name, record in runs.items() if "method/triplet_active" in record["scores"]
    ] == ["c1"]


def test_mu2_of_zero_is_c1(run_small):
    """Table 2 of the paper: mu2 = 0 lets all clients take part from the start."""
    curves = []
    for override in ("method.mu2=0", "method.ablation=c1"):
        record = run_small(*FAST, override, "budget.participations=8")
        curves.append(
            [
                line.split(",")[:5]
                for line in (record["folder"] / "curve.csv").read_text().splitlines()
            ]
        )
    assert curves[0] == curves[1]
    assert len(curves[0]) == 3


def test_warmup_trains_each_network_on_its_own_loss(make_client, make_ctx, two_vectors):
    """Both networks share batches and one summed loss, yet each moves as if trained alone."""
    method = FedCNML(FedCNMLParams())
    ctx = make_ctx(1, "warmup")
    both = method.local_update(
        make_client(), Payload(dict(zip("ab", two_vectors, strict=True)), {}), ctx
    )
    alone = method.local_update(make_client(), Payload({"b": two_vectors[1]}, {}), ctx)
    assert torch.equal(both.models["b"], alone.models["b"])
    client = make_client()
    x = client.images(torch.arange(40))
    losses = [
        cross_entropy(client.network(vector)(x), client.labels).item()
        for vector in (two_vectors[1], both.models["b"])
    ]
    assert losses[1] < losses[0]
