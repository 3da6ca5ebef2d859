"""Protocols and hyperparameters: one recipe for all methods, from one file per protocol."""

import itertools
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import yaml
from run_helpers import compose_runs

from benchmarks.config import experiments, protocols
from benchmarks.config.compose import compose_run
from benchmarks.config.labels import protocol_caption
from benchmarks.config.protocols import Selection, load_protocol, resolve
from benchmarks.config.schema import SCALES
from benchmarks.run import main
from hydra_plugins.fln.search_path import plugin_conf_dirs
from methods.core import registry
from methods.core.errors import UserError

CONF = experiments.CONF
PROTOCOLS = protocols.protocol_names([CONF])
DATASETS = sorted(path.stem for path in (CONF / "dataset").glob("*.yaml"))
REQUIRED = ("train.lr", "train.optimizer", "federation.num_clients", "budget.participations")
METHODS = [info.name for info in registry.METHODS.all()]
DEFAULT_PROTOCOLS = {
    **dict.fromkeys(["cifar10", "cifar100", "clothing1m"], "fedcorr"),
    **dict.fromkeys(["mnist", "fashion_mnist", "imagenet100"], "lsg"),
    **dict.fromkeys(["digits", "npz"], "digits"),
}


def choices(**names: str) -> list[str]:
    path = ["dataset.path=any.npz"] if names.get("dataset") == "npz" else []
    return [*(f"{key}={name}" for key, name in names.items()), *path]


def scales(protocol: str, dataset: str) -> list[str]:
    """Scales at which a protocol has a setting for a dataset."""
    found = []
    for scale in SCALES:
        try:
            resolve(Selection("common", protocol, "fedavg", dataset, scale), [CONF])
            found.append(scale)
        except UserError as error:
            assert f"no setting for dataset={dataset}" in str(error)
    return found


def test_protocols() -> None:
    assert PROTOCOLS == ["digits", "fedcnml", "fedcorr", "lsg"]
    assert set(DEFAULT_PROTOCOLS) == set(DATASETS)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.no_cover
def test_all_methods_share_the_common_recipe(protocol: str) -> None:
    """Also a method that no file names. Small scales may set method parameters."""
    for dataset in DATASETS:
        assert scales(protocol, dataset)[-2:] == ["laptop", "smoke"]
        for scale in scales(protocol, dataset):
            selections = [Selection("common", protocol, m, dataset, scale) for m in METHODS]
            found = [resolve(selection, [CONF]) for selection in [*selections, selections[0]]]
            assert found[0].keys() >= {"model", "partition", "noise", *REQUIRED}
            shared = [{k: v for k, v in one.items() if k[:7] != "method."} for one in found]
            assert all(one == shared[0] for one in shared), (protocol, dataset, scale)
            assert shared[0]["hyperparameters"] == "common"
            assert scale != "paper" or all(one.keys() == shared[0].keys() for one in found)


@pytest.mark.no_cover
def test_every_protocol_composes_for_every_dataset_and_scale() -> None:
    """Methods take turns. An unknown key in a protocol is an error."""
    methods = itertools.cycle(METHODS)
    triples = [
        (protocol, dataset, scale)
        for protocol, dataset in product(PROTOCOLS, DATASETS)
        for scale in scales(protocol, dataset)
    ]
    runs = [
        choices(protocol=p, dataset=d, scale=s, method=m, hyperparameters="common")
        for (p, d, s), m in zip(triples, methods, strict=False)
    ]
    for (protocol, dataset, scale), config in zip(triples, compose_runs(runs), strict=True):
        assert (config.protocol, config.dataset.name, config.scale) == (protocol, dataset, scale)


@pytest.mark.no_cover
def test_published_values_are_valid() -> None:
    """An unknown parameter in a file is an error. All methods are published with some dataset."""
    runs = [
        choices(protocol=p, dataset=d, scale="paper", method=m, hyperparameters="published")
        for p, d, m in product(PROTOCOLS, DATASETS, METHODS)
        if "paper" in scales(p, d)
        and resolve(Selection("published", p, m, d, "paper"), [CONF])["hyperparameters"] != "common"
    ]
    configs = compose_runs(runs)
    assert {config.hyperparameters for config in configs} == {"published"}
    assert {config.method.name for config in configs} == {
        info.name for info in registry.METHODS.all() if info.cls.__module__.startswith("methods.")
    }


@pytest.mark.no_cover
def test_tuned_values_are_valid() -> None:
    files = [path.relative_to(CONF / "tuned") for path in (CONF / "tuned").glob("*/*/*.yaml")]
    runs = []
    for path in files:
        dataset, _, scale = path.parts[1].rpartition("_")
        names = {"protocol": path.parts[0], "dataset": dataset, "scale": scale}
        runs.append(choices(**names, method=path.stem, hyperparameters="tuned"))
    configs = compose_runs(runs)
    assert all(config.hyperparameters.startswith("tuned") for config in configs)


def test_entries_name_methods_datasets_and_scales() -> None:
    known = {"method": METHODS, "dataset": DATASETS, "scale": SCALES}
    for protocol in PROTOCOLS:
        entries = load_protocol(protocol, [CONF])
        for entry, (key, names) in product(entries["common"] + entries["published"], known.items()):
            selected = entry.get(key, [])
            assert {*([selected] if isinstance(selected, str) else selected)} <= {*names}
        assert all("method" in entry for entry in entries["published"])
        # Values for one method are not common, except schedules at small scales.
        for entry in entries["common"]:
            scales_of_entry = entry.get("scale", "all")
            assert "method" not in entry or scales_of_entry in ("smoke", ["laptop", "smoke"])


@pytest.mark.parametrize("dataset", DATASETS)
def test_default_protocol_of_a_dataset(dataset: str) -> None:
    default = DEFAULT_PROTOCOLS[dataset]
    assert compose_run(choices(dataset=dataset)).protocol == default
    given = compose_run(choices(dataset=dataset, protocol="fedcnml"))
    assert given.protocol == "fedcnml"


def test_default_hyperparameters_of_a_scale() -> None:
    paper = compose_run(["dataset=cifar10", "scale=paper", "method=fedprox"])
    assert (paper.hyperparameters, paper.train.lr) == ("published", 0.01)
    common = compose_run(
        [*"dataset=cifar10 scale=paper method=fedprox".split(), "hyperparameters=common"]
    )
    assert (common.hyperparameters, common.train.lr) == ("common", 0.03)
    # FedCorr did not run LSG: the common recipe is used, and recorded as such.
    other = compose_run(["dataset=cifar10", "scale=paper", "method=lsg"])
    assert (other.hyperparameters, other.train.lr) == ("common", 0.03)


def test_command_line_takes_precedence() -> None:
    overrides = "dataset=cifar10 scale=paper method=fedprox protocol=lsg model=lenet5 noise=none"
    config = compose_run([*overrides.split(), "train.lr=0.5", "federation.num_clients=30"])
    assert (config.protocol, config.train.optimizer, config.train.lr) == ("lsg", "adam", 0.5)
    assert (config.model.name, config.noise.name) == ("lenet5", "none")
    assert config.federation.num_clients == 30


def test_values_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dataset=mnist", "method=lsg", "hyperparameters=published", "--cfg", "job"]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert (shown["protocol"], shown["hyperparameters"]) == ("lsg", "published")
    assert shown["train"]["optimizer"] == "adam" and shown["noise"]["name"] == "symmetric"
    assert shown["method"]["warmup_fraction"] == 0.1


def test_choice_is_part_of_the_run_id() -> None:
    run = ["method=fedavg", "dataset=cifar100", "scale=paper"]
    one, two = compose_run(run), compose_run([*run, "hyperparameters=common"])
    assert one.train == two.train and one.run_id != two.run_id
    assert one.hashed_config()["hyperparameters"] == "published"


def test_method_and_dataset_of_another_package_need_no_file() -> None:
    config = compose_run(["method=norm_clipping", "dataset=mnist"])
    fedavg = compose_run(["dataset=mnist", "hyperparameters=common"])
    assert (config.train, config.hyperparameters) == (fedavg.train, "common")
    generic = resolve(Selection("common", "lsg", "any", "unknown", "laptop"), [CONF])
    assert (generic["model"], generic["train.optimizer"]) == ("mlp", "adam")


def test_package_ships_a_protocol() -> None:
    config = compose_run(["dataset=stripes", "scale=smoke"])
    assert (config.protocol, config.model.name) == ("stripes", "pooled_linear")
    assert (config.federation.num_clients, config.train.momentum) == (4, 0.5)
    assert "stripes" in protocols.protocol_names([CONF, *plugin_conf_dirs()])


@pytest.mark.no_cover
def test_accuracy_of_lsg_is_the_mean_of_the_last_ten_rounds() -> None:
    """`last10` is the mean of the last ten evaluations, LSG's tables of the last ten rounds."""
    runs: dict[tuple[str, ...], list[str]] = {}  # one of each method and dataset
    for name in experiments.experiment_names():
        if name.startswith("lsg_"):
            for run in experiments.load_experiment(name).run_overrides("paper"):
                key = tuple(text for text in run if text.startswith(("method=", "dataset=")))
                if len(key) == 2:
                    runs[key] = [*run, "scale=paper"]
    assert len(runs) > 20
    assert {config.evaluate.every for config in compose_runs(runs.values())} == {1}


def test_caption_names_the_methods_behind_a_mixture() -> None:
    same = [("digits", "common", "lsg"), ("digits", "common", "fedcorr")]
    assert protocol_caption(same) == "protocol digits, hyperparameters common"
    mixed = [*same, ("digits", "tuned", "arfl"), ("lsg", "common", "arfl")]
    assert protocol_caption(mixed) == (
        "protocol digits (arfl, fedcorr, lsg), lsg (arfl),"
        " hyperparameters common (arfl, fedcorr, lsg), tuned (arfl)"
    )


def write_conf(conf: Path, name: str, content: str) -> None:
    path = conf / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def test_tuned_values_and_oracle_mark(tmp_path: Path) -> None:
    file = "tuned/digits/digits_smoke/fedprox.yaml"
    write_conf(tmp_path, file, "overrides: {train.lr: 0.5, method.mu: 0.1}\ntrials: 8\n")
    selection = Selection("tuned", "digits", "fedprox", "digits", "smoke")
    found = resolve(selection, [CONF, tmp_path])
    assert (found["train.lr"], found["method.mu"]) == (0.5, 0.1)
    assert (found["train.batch_size"], found["hyperparameters"]) == (10, "tuned")
    for other in ({"method": "feddyn"}, {"dataset": "mnist"}, {"hyperparameters": "common"}):
        assert resolve(selection._replace(**other), [tmp_path, CONF])["hyperparameters"] == "common"
    write_conf(tmp_path, file, "overrides: {train.lr: 0.25}\noracle: true\nspace: {train.lr: 1}\n")
    found = resolve(selection, [CONF, tmp_path])
    assert (found["train.lr"], found["hyperparameters"]) == (0.25, "tuned_oracle")
    config = replace(compose_run(["method=fedprox"]), hyperparameters="tuned_oracle")
    assert "hyperparameters" in config.oracle_reason
    write_conf(tmp_path, file, "lr: 0.25\n")
    with pytest.raises(UserError, match="fedprox.yaml: expected `overrides` with keys and values"):
        resolve(selection, [CONF, tmp_path])


def test_tuned_values_of_a_config_directory_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = "overrides: {train.lr: 0.5, method.mu: 0.25}\noracle: true\n"
    write_conf(tmp_path, "tuned/fedcnml/npz_smoke/fedprox.yaml", content)
    arguments = choices(protocol="fedcnml", dataset="npz", scale="smoke", method="fedprox")
    assert main([*arguments, "train.lr=0.75", "--cfg", "job", "--config-dir", str(tmp_path)]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert (shown["hyperparameters"], shown["method"]["mu"]) == ("tuned_oracle", 0.25)
    assert (shown["train"]["lr"], shown["train"]["momentum"]) == (0.75, 0.9)


def test_protocol_of_a_config_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_conf(tmp_path, "protocol/mine.yaml", "base: lsg\ncommon: [{train.lr: 0.125}]\n")
    assert main(["protocol=mine", "--cfg", "job", "--config-dir", str(tmp_path)]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert (shown["protocol"], shown["train"]["lr"]) == ("mine", 0.125)
    assert shown["train"]["optimizer"] == "adam"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("commmon: []", "unknown key commmon: did you mean common?"),
        ("base: nothing", "unknown protocol nothing: available: digits, fedcnml"),
        ("base: mine", "invalid base='mine': expected another protocol"),
        ("common:", "invalid common=null: expected a list of mappings"),
        ("published: [3]", "invalid published=[3]: expected a list of mappings"),
        ("[1]", "expected a mapping"),
        ("a: [", "ParserError"),
    ],
)
def test_invalid_protocol_is_one_line(content: str, reason: str, tmp_path: Path) -> None:
    write_conf(tmp_path, "protocol/mine.yaml", content)
    with pytest.raises(UserError) as caught:
        load_protocol("mine", [tmp_path, CONF])
    assert reason in str(caught.value) and "\n" not in str(caught.value)
