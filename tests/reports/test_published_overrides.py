"""Overrides of the published cells: known keys, and the values that the papers give."""

import pytest
import yaml

from reports.published.tables import load_settings, load_table, table_names
from reports.tables.matching import compose_flat

SWITCHES: dict[str, set[str]] = {
    "fedcorr": {
        "correction",
        "fraction_scheduling",
        "proximal",
        "finetuning",
        "usual_training",
        "mixup",
    },
    "lsg": {"sharpening", "distillation"},
    "fedcnml": {"ablation", "mu2"},
}
# Parameters that no heading sets: chosen by noise level, or by a paper with another protocol.
SETTINGS = {
    "lsg": {"lambda_"},
    "coteaching": {"forget_rate"},
    "dividemix": {
        *("lambda_u", "lambda_u_ramp_fraction"),
        *("budget_fraction", "warmup_fraction", "divide_epochs"),
    },
    "jointopt": {
        *("alpha", "beta", "min_predictions", "retrain_fraction"),
        *("budget_fraction", "warmup_fraction", "joint_epochs"),
    },
}
TRAIN = {
    f"train.{name}"
    for name in ("lr", "batch_size", "optimizer", "momentum", "weight_decay", "local_epochs")
}
BASELINES = (
    "fedavg",
    "fedprox",
    "rofl",
    "arfl",
    "jointopt",
    "dividemix",
    "symmetric_ce",
    "coteaching",
    "fedlsr",
)
GROUPS = {
    "protocol": {"fedcorr", "lsg", "fedcnml"},
    "dataset": {"cifar10", "cifar100", "clothing1m", "mnist", "fashion_mnist", "imagenet100"},
    "model": {"lenet5", "cnn9", "vgg11", "resnet18", "resnet34", "resnet50"},
    "partition": {"iid", "bernoulli_dirichlet", "classes_per_client", "centralized"},
    "noise": {"rho_tau", "symmetric", "pairwise", "none"},
    "method": {*SWITCHES, *BASELINES},
}
KEYS: dict[str, dict[str, set[str]]] = {
    "partition": {
        "iid": {"form"},
        "bernoulli_dirichlet": {"form", "p", "alpha"},
        "classes_per_client": {"classes"},
        "centralized": {"noise_clients"},
    },
    "noise": {
        "rho_tau": {"form", "rho", "tau"},
        "symmetric": {"epsilon"},
        "pairwise": {"epsilon"},
        "none": set(),
    },
    "method": {
        name: SWITCHES.get(name, set()) | SETTINGS.get(name, set())
        for name in (*SWITCHES, *BASELINES)
    },
}


@pytest.mark.parametrize("name", table_names())
def test_cells_set_known_keys_only(name):
    table = load_table(name)
    for row in table.rows:
        for column in table.columns:
            overrides = dict(
                override.split("=") for override in table.overrides(row.label, column.label)
            )
            if not table.cell(row.label, column.label).method:
                assert (name, row.name) in {
                    ("lsg_table4", "Forward"),
                    ("lsg_table4", "Generalized CE"),
                }
                continue
            for group, options in GROUPS.items():
                assert overrides[group] in options
                inner = {key.partition(".")[2] for key in overrides if key.startswith(f"{group}.")}
                assert inner <= KEYS.get(group, {}).get(overrides[group], set())
            rest = {key for key in overrides if key.partition(".")[0] not in GROUPS}
            assert rest <= {
                "federation.num_clients",
                "federation.clients_per_round",
                "budget.participations",
                "oracle",
                *TRAIN,
            }
            assert (overrides["partition"] == "centralized") == (
                overrides["federation.num_clients"] == "1"
            )
            assert (overrides["partition"] == "centralized") == (
                "federation.clients_per_round" in overrides
            )


def test_configuration_of_a_centralized_reference():
    """FedCorr's Table 8, low noise. 320 of 10,000 participations, 120 of them retraining."""
    assert load_table("fedcorr_table2").overrides(
        "Centralized / JointOpt", "rho=0.4 / tau=0.5"
    ) == (
        "protocol=fedcorr",
        "dataset=cifar10",
        "model=resnet18",
        "partition=centralized",
        "federation.num_clients=1",
        "noise=rho_tau",
        "noise.form=official",
        "noise.rho=0.4",
        "noise.tau=0.5",
        "method=jointopt",
        "partition.noise_clients=100",
        "federation.clients_per_round=1",
        "method.budget_fraction=0.032",
        "method.warmup_fraction=0",
        "method.joint_epochs=1",
        "method.min_predictions=70",
        "method.retrain_fraction=0.375",
        "train.batch_size=128",
        "train.momentum=0.9",
        "train.weight_decay=0.0001",
        "method.alpha=1.2",
        "method.beta=1.5",
        "train.lr=0.1",
        "oracle=[method.beta,train.lr]",
    )


def test_smaller_scales_keep_overrides_that_distinguish_cells():
    key = ("Centralized / JointOpt", "rho=0.8 / tau=0.0")
    paper, laptop = (
        load_table("fedcorr_table2").overrides(*key, scale) for scale in ("paper", "laptop")
    )
    assert set(paper) - set(laptop) == {"model=resnet18", "method.min_predictions=70"}
    assert set(laptop) - set(paper) == {"method.min_predictions=7"}
    assert {"federation.num_clients=1", "train.lr=0.2"} <= set(laptop)
    assert "budget.participations=400" in load_table("lsg_table4").overrides(
        "FL / Ours", "Test accuracy"
    )
    assert "budget.participations=400" not in load_table("lsg_table4").overrides(
        "FL / Ours", "Test accuracy", "laptop"
    )


LAMBDA_U = {"fedcorr_table2": ("0", "25"), "fedcorr_table3": ("25", "150")}


@pytest.mark.parametrize("name", LAMBDA_U)
def test_parameters_follow_the_noise_groups_of_the_published_settings(name):
    """Table 8 lists the low noise levels; appendix B uses the same two groups for lambda_u."""
    table, low_levels = load_table(name), str(load_settings("fedcorr_table8").rows[0].values[0])
    for row in (
        row for row in table.rows if row.overrides[0] in ("method=dividemix", "method=jointopt")
    ):
        for column in table.columns:
            given = dict(text.split("=") for text in table.overrides(row.label, column.label))
            low = f"({given['noise.rho']}, {given['noise.tau']})" in low_levels
            if given["method"] == "dividemix":
                assert given["method.lambda_u"] == LAMBDA_U[name][0 if low else 1]
                assert given["oracle"] == "[method.lambda_u]"
            elif given["partition"] == "centralized":
                assert (given["method.beta"], given["train.lr"]) == (
                    ("1.5", "0.1") if low else ("0.8", "0.2")
                )
            else:
                assert "method.beta" not in given and "train.lr" not in given


@pytest.mark.parametrize("name", ["lsg_table1", "lsg_table3", "lsg_table5", "lsg_table6"])
def test_distillation_weight_follows_the_noise_level(name):
    """LSG, section V-A: 0.4 at symmetric 0.3 to 0.5, pairwise 0.2 and 0.3; otherwise 1."""
    low = {
        ("symmetric", "0.3"),
        ("symmetric", "0.4"),
        ("symmetric", "0.5"),
        ("pairwise", "0.2"),
        ("pairwise", "0.3"),
    }
    table = load_table(name)
    for row in table.rows:
        for column in table.columns:
            given = dict(text.split("=") for text in table.overrides(row.label, column.label))
            expected = (
                "0.4"
                if (given["noise"], given["noise.epsilon"]) in low and given["method"] == "lsg"
                else None
            )
            assert given.get("method.lambda_") == expected
            is_lsg = given["method"] == "lsg"
            assert given.get("oracle") == ("[method.lambda_]" if is_lsg else None)
            assert given.get("method.forget_rate") == (
                "${noise.epsilon}" if given["method"] == "coteaching" else None
            )
            assert given["budget.participations"] == "1000"


def test_runs_of_one_table_are_distinct():
    for name in table_names():
        table = load_table(name)
        keys = [(row.label, column.label) for row in table.rows for column in table.columns]
        runs = [frozenset(table.overrides(*key)) for key in keys if table.cell(*key).method]
        assert len(set(runs)) == len(runs)


# Models of the papers at scale=paper, by dataset and model override.
MODELS = {
    ("cifar10", "resnet18"): {"stem": "cifar"},
    ("cifar10", "vgg11"): {},
    ("cifar10", "lenet5"): {},
    ("cifar10", "cnn9"): {"dropout_in_eval": False},
    ("cifar100", "resnet34"): {"stem": "cifar"},
    ("cifar100", "resnet18"): {"stem": "cifar"},
    ("clothing1m", "resnet50"): {"pretrained": True},
    ("mnist", "cnn9"): {"dropout_in_eval": False},
    ("fashion_mnist", "cnn9"): {"dropout_in_eval": False},
    ("imagenet100", "resnet18"): {"stem": "imagenet"},
}


def test_composed_cells_have_the_model_and_the_values_of_their_overrides():
    """One cell per dataset and model. The run ids of all cells are frozen in tests/frozen."""
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for table in map(load_table, table_names()):
        for cell in table.cells:
            if cell.method and cell.column != table.average:
                values = dict(text.split("=", 1) for text in table.overrides(cell.row, cell.column))
                cells.setdefault((values["dataset"], values["model"]), values)
    assert set(cells) == set(MODELS)
    for key, values in cells.items():
        config = compose_flat([f"{name}={value}" for name, value in values.items()], "paper")
        model = {"name": key[1], **MODELS[key]}
        assert {name: config[f"model.{name}"] for name in model} == model
        assert sum(name.startswith("model.") for name in config) == len(model)
        for name, value in values.items():
            key = name if "." in name or name in ("protocol", "oracle") else f"{name}.name"
            expected = yaml.safe_load(value)
            assert config[key] == (tuple(expected) if name == "oracle" else expected)
