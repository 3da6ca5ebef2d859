"""Composition of run configurations: equal to Hydra's own, and the rule for model parameters."""

from collections.abc import Iterable

import pytest
from hydra import compose
from hydra.core.global_hydra import GlobalHydra
from run_helpers import compose_runs

from benchmarks.config import compose as compose_module
from benchmarks.config.compose import (
    Composer,
    compose_run,
    hydra_session,
    validate_config,
)
from benchmarks.config.experiments import experiment_names, load_experiment
from benchmarks.config.sweep import expand
from methods.core.errors import UserError

PUBLISHED = {
    name: [[*run, "scale=paper"] for run in load_experiment(name).run_overrides("paper")]
    for name in experiment_names()
}


def assert_equals_hydra(runs: Iterable[list[str]]) -> None:
    with hydra_session():
        composer = Composer()
        for run in runs:
            assert composer.compose_run(run) == validate_config(compose("config", run))


@pytest.mark.no_cover
def test_last_run_of_every_experiment_equals_hydra() -> None:
    assert_equals_hydra(runs[-1] for runs in PUBLISHED.values())


@pytest.mark.slow
def test_every_published_run_equals_hydra() -> None:
    assert_equals_hydra(run for runs in PUBLISHED.values() for run in runs)


@pytest.mark.parametrize(
    "overrides",
    [
        "noise.rho=0.3 ++noise.rho=0.2",
        "++noise.rho=0.2 noise.rho=0.3",
        "seed=2 seed=3",
        "dataset=npz dataset.path=mine.npz model=mlp model.hidden=[8,16]",
        "noise=symmetric noise.epsilon=0.3 method=coteaching method.forget_rate=${noise.epsilon}",
        "model=null +model=mlp",
        "train={lr:0.5,momentum:0.1}",
        "protocol=lsg hyperparameters=published method=lsg dataset=cifar10 train.lr=0.5",
        "scale=paper dataset=mnist hyperparameters=common noise=pairwise",
        "tracking=wandb tracking.entity=null tracking.mode=offline",
    ],
)
def test_unusual_overrides_equal_hydra(overrides: str) -> None:
    texts = overrides.split()
    with hydra_session():
        try:
            expected = validate_config(compose("config", texts))
        except Exception:
            with pytest.raises(UserError):
                Composer().compose_run(texts)
        else:
            assert Composer().compose_run(texts) == expected


def test_runs_with_the_same_options_share_a_composition(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(compose_module, "_KNOWN", {})
    monkeypatch.setattr(
        compose_module, "compose", lambda *given: calls.append(given) or compose(*given)
    )
    runs = [[f"method={m}", f"seed={s}"] for m in ("fedavg", "fedprox") for s in range(10)]
    configs = compose_runs(runs)
    assert len(configs) == 20 and len(calls) == 2
    assert [config.seed for config in configs] == [*range(10), *range(10)]


def test_a_table_with_five_seeds_needs_ten_compositions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine rows select different options; one composition reads the experiment."""
    calls = []
    monkeypatch.setattr(compose_module, "_KNOWN", {})
    monkeypatch.setattr(
        compose_module, "compose", lambda *given: calls.append(given) or compose(*given)
    )
    assert len(expand(["experiment=fedcorr_table2", "seed=1,2,3,4,5"])) == 315
    assert len(calls) == 10


def test_values_do_not_leak_into_later_runs() -> None:
    changed, unchanged = compose_runs([["noise.rho=0.1", "model=mlp"], ["model=mlp"]])
    assert (changed.noise.params.rho, unchanged.noise.params.rho) == (0.1, 0.6)


def test_a_seed_does_not_leak_into_later_runs() -> None:
    seeds = [
        config.seed for config in compose_runs([["seed=3"], [], ["seed=4"], ["noise.rho=0.8"]])
    ]
    assert seeds == [3, 1, 4, 1]


def test_hydra_state_is_restored_after_an_error() -> None:
    with hydra_session():
        before = GlobalHydra.instance().hydra
        with pytest.raises(UserError):
            compose_run(["seed=one"])
        assert GlobalHydra.instance().hydra is before


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ("dataset=imagenet100", {"name": "resnet18", "stem": "imagenet"}),
        ("dataset=imagenet100 model=resnet18", {"name": "resnet18", "stem": "imagenet"}),
        ("dataset=imagenet100 model=resnet34", {"name": "resnet34", "stem": "imagenet"}),
        ("dataset=imagenet100 model=lenet5", {"name": "lenet5"}),
        (
            "dataset=imagenet100 model=resnet18 model.stem=cifar",
            {"name": "resnet18", "stem": "cifar"},
        ),
        ("dataset=cifar10 model=resnet18", {"name": "resnet18", "stem": "cifar"}),
        (
            "dataset=clothing1m scale=paper model=resnet50",
            {"name": "resnet50", "pretrained": True},
        ),
        (
            "dataset=clothing1m scale=paper model=resnet50 model.pretrained=false",
            {"name": "resnet50", "pretrained": False},
        ),
    ],
)
def test_selected_model_keeps_the_parameters_of_the_dataset(
    overrides: str, expected: dict[str, object]
) -> None:
    assert compose_run(overrides.split()).hashed_config()["model"] == expected
