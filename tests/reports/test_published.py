"""The published numbers: complete, in place, and tied to a configuration."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reports.published import (
    load_settings,
    load_table,
    settings_names,
    table_names,
    tables,
)

# Cells, cells with a number, and the sums of values, deviations and ratios: a later slip in a file changes one of them.
TOTALS = {
    "fedcorr_table2": (63, 63, 5337.65, 56.04, 0.0),
    "fedcorr_table3": (36, 36, 2075.64, 62.08, 0.0),
    "fedcorr_table4": (21, 21, 1476.41, 44.22, 0.0),
    "fedcorr_table5": (14, 9, 643.29, 0.0, 0.0),
    "fedcorr_table6": (49, 49, 4387.43, 50.36, 0.0),
    "fedcorr_table9": (7, 7, 410.14, 15.77, 0.0),
    "fedcorr_table10": (21, 21, 1729.44, 14.27, 0.0),
    "fedcorr_table11": (49, 33, 34140.0, 0.0, 121.5),
    "fedcorr_table12": (49, 48, 20340.0, 0.0, 210.4),
    "fedcorr_table13": (28, 18, 14185.0, 0.0, 64.9),
    "lsg_table1": (162, 162, 12588.99, 0.0, 0.0),
    "lsg_table2": (18, 18, 488.28, 0.0, 0.0),
    "lsg_table3": (12, 12, 834.72, 0.0, 0.0),
    "lsg_table4": (9, 9, 627.86, 0.0, 0.0),
    "lsg_table5": (16, 16, 1281.73, 0.0, 0.0),
    "lsg_table6": (24, 24, 2142.2, 0.0, 0.0),
    "fedcnml_table2": (20, 20, 1859.65, 0.0, 0.0),
    "fedcnml_table3": (30, 30, 2763.45, 8.12, 0.0),
    "fedcnml_table4": (18, 18, 1292.56, 21.09, 0.0),
    "fedcnml_table5": (20, 20, 1796.37, 0.0, 0.0),
}

ANCHORS = [
    ("fedcorr_table2", "Centralized / DivideMix", "rho=0.0 / tau=0.0", 95.64, 0.05),
    ("fedcorr_table2", "Federated / FedAvg", "rho=0.8 / tau=0.5", 72.00, 2.76),
    ("fedcorr_table3", "Ours", "rho=0.4 / tau=0.5", 74.43, 0.72),
    ("fedcorr_table4", "ARFL", "(0.3, 10)", 45.78, 2.84),
    ("fedcorr_table5", "CL", "Dividemix", 74.76, None),
    ("fedcorr_table6", "Ours w/o frac. scheduling", "rho=0.4 / tau=0.5", 78.44, 7.90),
    ("fedcorr_table9", "Ours", "(0.7, 10)", 72.73, 1.02),
    ("fedcorr_table10", "LeNet-5", "rho=0.8 / tau=0.5", 65.16, 0.53),
    ("fedcorr_table11", "FedProx", "rho=0.8 / tau=0.5", 4640, None),
    ("fedcorr_table12", "DivideMix", "rho=0.8 / tau=0.0", 930, None),
    ("fedcorr_table13", "FedAvg", "rho=0.8 / tau=0.5", None, None),
    ("lsg_table1", "MNIST / RFL", "Pairwise / 0.4", 98.98, None),
    ("lsg_table1", "CIFAR-10 / Ours", "Avg.", 66.95, None),
    ("lsg_table2", "Ours", "Symmetric / 0.6", 29.27, None),
    ("lsg_table3", "Ours", "Pairwise (0.4)", 85.21, None),
    ("lsg_table4", "FL / Ours", "Test accuracy", 70.64, None),
    ("lsg_table5", "Symmetric / 0.7", "w/o Sharpening", 42.19, None),
    ("lsg_table6", "Pairwise / 0.4", "Distillation Loss Term / JS Div", 87.05, None),
    ("fedcnml_table2", "rho=0.8", "mu2=15", 89.11, None),
    ("fedcnml_table3", "Federated / Fed-CNML", "rho=1.0", 93.96, 0.33),
    ("fedcnml_table4", "Federated / FedCorr", "rho=1.0", 57.89, 6.10),
    ("fedcnml_table5", "Fed-C2", "rho=0.8", 77.44, None),
]

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
# What no heading prints: chosen by noise level, or by a paper with another protocol.
SETTINGS = {
    "lsg": {"lambda_"},
    "coteaching": {"forget_rate", "forget_rate_is_oracle"},
    "rofl": {"ramp_rounds", "pseudo_label_start"},
    "dividemix": {
        *("lambda_u", "lambda_u_is_oracle", "lambda_u_ramp"),
        *("budget_share", "warmup_share", "divide_epochs"),
    },
    "jointopt": {
        *("alpha", "beta", "start_after", "retrain_share"),
        *("budget_share", "warmup_share", "joint_epochs"),
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


def test_all_tables_are_there():
    assert table_names() == tuple(TOTALS)
    assert settings_names() == (
        "fedcorr_table1",
        "fedcorr_table7",
        "fedcorr_table8",
        "fedcnml_table1",
    )


@pytest.mark.parametrize("name", TOTALS)
def test_totals(name):
    cells = load_table(name).cells
    values = [cell.value for cell in cells if cell.value is not None]
    sums = [values, [cell.std or 0.0 for cell in cells], [cell.ratio or 0.0 for cell in cells]]
    assert (len(cells), len(values), *(round(sum(numbers), 2) for numbers in sums)) == TOTALS[name]


@pytest.mark.parametrize(("name", "row", "column", "value", "std"), ANCHORS)
def test_anchors(name, row, column, value, std):
    cell = load_table(name).cell(row, column)
    assert (cell.value, cell.std) == (value, std)


def test_dashes_say_why():
    reasons = {
        name: {cell.note for cell in load_table(name).cells if cell.value is None}
        for name in table_names()
    }
    assert {name: notes for name, notes in reasons.items() if notes} == {
        "fedcorr_table5": {"not given"},
        "fedcorr_table11": {"not reached"},
        "fedcorr_table12": {"not reached"},
        "fedcorr_table13": {"not reached"},
    }


@pytest.mark.parametrize("name", TOTALS)
def test_every_cell_has_a_legal_configuration(name):
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
            for group, legal in GROUPS.items():
                assert overrides[group] in legal
                inner = {key.partition(".")[2] for key in overrides if key.startswith(f"{group}.")}
                assert inner <= KEYS.get(group, {}).get(overrides[group], set())
            rest = {key for key in overrides if key.partition(".")[0] not in GROUPS}
            assert rest <= {
                "federation.num_clients",
                "federation.clients_per_round",
                "budget.participations",
                *TRAIN,
            }
            assert (overrides["partition"] == "centralized") == (
                overrides["federation.num_clients"] == "1"
            )
            assert (overrides["partition"] == "centralized") == (
                "federation.clients_per_round" in overrides
            )


def test_configuration_of_a_centralized_reference():
    """FedCorr's Table 8, low noise; 320 of 10,000 participations, of which 120 are JointOpt's second step."""
    assert load_table("fedcorr_table2").overrides(
        "Centralized / JointOpt", "rho=0.4 / tau=0.5"
    ) == (
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
        "method.budget_share=0.032",
        "method.warmup_share=0",
        "method.joint_epochs=1",
        "method.start_after=70",
        "method.retrain_share=0.375",
        "train.batch_size=128",
        "train.momentum=0.9",
        "train.weight_decay=0.0001",
        "method.alpha=1.2",
        "method.beta=1.5",
        "train.lr=0.1",
    )


def test_a_smaller_scale_keeps_what_tells_cells_apart():
    place = ("Centralized / JointOpt", "rho=0.8 / tau=0.0")
    paper, laptop = (
        load_table("fedcorr_table2").overrides(*place, scale) for scale in ("paper", "laptop")
    )
    assert set(paper) - set(laptop) == {"model=resnet18", "method.start_after=70"}
    assert set(laptop) - set(paper) == {"method.start_after=7"}
    assert {"federation.num_clients=1", "train.lr=0.2"} <= set(laptop)
    assert "budget.participations=400" in load_table("lsg_table4").overrides(
        "FL / Ours", "Test accuracy"
    )
    assert "budget.participations=400" not in load_table("lsg_table4").overrides(
        "FL / Ours", "Test accuracy", "laptop"
    )


LAMBDA_U = {"fedcorr_table2": ("0", "25"), "fedcorr_table3": ("25", "150")}


@pytest.mark.parametrize("name", LAMBDA_U)
def test_settings_follow_the_noise_groups_of_the_printed_table(name):
    """Table 8 lists the levels of the low group; appendix B uses the same two groups for lambda_u."""
    table, low_levels = load_table(name), str(load_settings("fedcorr_table8").rows[0].values[0])
    for row in (
        row for row in table.rows if row.overrides[0] in ("method=dividemix", "method=jointopt")
    ):
        for column in table.columns:
            given = dict(text.split("=") for text in table.overrides(row.label, column.label))
            low = f"({given['noise.rho']}, {given['noise.tau']})" in low_levels
            if given["method"] == "dividemix":
                oracle = given["method.lambda_u_is_oracle"]
                assert (given["method.lambda_u"], oracle) == (
                    LAMBDA_U[name][0 if low else 1],
                    "true",
                )
            elif given["partition"] == "centralized":
                assert (given["method.beta"], given["train.lr"]) == (
                    ("1.5", "0.1") if low else ("0.8", "0.2")
                )
            else:
                assert "method.beta" not in given and "train.lr" not in given


@pytest.mark.parametrize("name", ["lsg_table1", "lsg_table3", "lsg_table5", "lsg_table6"])
def test_weight_of_distillation_follows_the_noise(name):
    """LSG, Section V-A: 0.4 at symmetric 0.3 to 0.5 and pairwise 0.2 and 0.3, else 1, the default."""
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
            assert given.get("method.forget_rate") == (
                "${noise.epsilon}" if given["method"] == "coteaching" else None
            )
            assert given["budget.participations"] == "1000"


def test_runs_of_one_table_are_distinct():
    for name in table_names():
        table = load_table(name)
        places = [(row.label, column.label) for row in table.rows for column in table.columns]
        runs = [frozenset(table.overrides(*place)) for place in places if table.cell(*place).method]
        assert len(set(runs)) == len(runs)


def test_groups_keep_pairs_together():
    groups = load_table("fedcorr_table2").groups
    assert {label: [column.name for column in columns] for label, columns in groups.items()} == {
        "rho=0.0": ["tau=0.0"],
        "rho=0.4": ["tau=0.0", "tau=0.5"],
        "rho=0.6": ["tau=0.0", "tau=0.5"],
        "rho=0.8": ["tau=0.0", "tau=0.5"],
    }


def test_footnotes_know_their_cells():
    table = load_table("fedcorr_table5")
    notes = [note.text for note in table.footnotes if note.applies("FL", "JointOpt")]
    assert len(notes) == 3 and any(text.startswith("40 rounds") for text in notes)
    assert not any(
        note.text.startswith("40 rounds")
        for note in table.footnotes
        if note.applies("FL", "FedAvg")
    )


def test_metrics_and_statistics():
    assert {name for name in table_names() if load_table(name).metric == "last10"} == {
        f"lsg_table{n}" for n in (1, 2, 3, 5, 6)
    }
    targets = {
        name: load_table(name).target
        for name in table_names()
        if load_table(name).metric == "target_cost"
    }
    assert targets == {"fedcorr_table11": 80, "fedcorr_table12": 65, "fedcorr_table13": 50}
    assert {
        load_table(name).trials for name in table_names() if load_table(name).spread == "std"
    } == {5}
    assert load_table("lsg_table4").trials == 3
    assert {load_table(name).scale for name in table_names()} == {"paper"}


def test_settings_budget():
    """FedCorr's three stages cost what 1000 rounds of FedAvg cost, 200 on Clothing1M (appendix B)."""
    for data, rounds in (("CIFAR-10", 1000), ("CIFAR-100", 1000), ("Clothing1M", 200)):
        clients, fraction, *stages = (
            float(load_settings(name).value(row, data))
            for name, row in (
                ("fedcorr_table1", "Number of clients"),
                ("fedcorr_table1", "Fraction gamma"),
                ("fedcorr_table7", "Iterations in stage 1"),
                ("fedcorr_table7", "Rounds in stage 2"),
                ("fedcorr_table7", "Rounds in stage 3"),
            )
        )
        assert (
            clients * stages[0] + clients * fraction * sum(stages[1:])
            == rounds * clients * fraction
        )


def test_settings_agree_with_the_results():
    for name in ("fedcorr_table1", "fedcnml_table1"):
        settings = load_settings(name)
        for column in settings.columns:
            clients = settings.value("Number of clients", column.label)
            paper = [
                load_table(other)
                for other in table_names()
                if load_table(other).paper == settings.paper
            ]
            common = [table.common for table in paper if column.overrides[0] in table.common]
            assert common and all(
                f"federation.num_clients={clients}" in overrides for overrides in common
            )
    levels = " ".join(str(value) for value in load_settings("fedcorr_table8").rows[0].values)
    for column in load_table("fedcorr_table2").columns:
        rho, tau = (override.partition("=")[2] for override in column.overrides)
        assert levels.count(f"({rho}, {tau})") == 1


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    copy = tmp_path / "published"
    shutil.copytree(tables.FOLDER, copy, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    monkeypatch.setattr(tables, "FOLDER", copy)
    return copy


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        (
            "fedcorr_table9.csv",
            "RoFL,",
            "Rofl,",
            "cell ('Rofl', '(0.7, 10)') where the layout has ('RoFL', '(0.7, 10)')",
        ),
        (
            "fedcorr_table9.csv",
            'Ours,"(0.7, 10)",fedcorr,72.73,1.02,\n',
            "",
            "cell None where the layout has ('Ours'",
        ),
        ("fedcorr_table9.csv", ",rofl,", ",arfl,", "method 'arfl'; the layout says 'rofl'"),
        ("fedcorr_table9.csv", "59.31,4.14", "59.31,", "std None; spread is 'std'"),
        ("fedcorr_table9.csv", "59.31", "5931", "value 5931.0; accuracies are 0 to 100"),
        ("fedcorr_table9.csv", "59.31,4.14", ",", "no value and no note"),
        ("fedcorr_table13.csv", "135,,1.4", "135,,", "ratio None; ratio_to is 'Ours'"),
        (
            "fedcorr_table9.yaml",
            "metric: best",
            "metric: worst",
            "metric 'worst'; one of best, last10, target_cost",
        ),
        (
            "fedcorr_table13.yaml",
            "target: 50",
            "target: null",
            "target None; only metric target_cost has one",
        ),
        ("fedcorr_table9.yaml", "scale:", "size:", "unknown key 'size'; one of average, "),
        (
            "fedcorr_table9.yaml",
            "kind: least_difference",
            "kind: most",
            "claim 'most'; one of least_difference",
        ),
        (
            "fedcorr_table9.yaml",
            "of: Ours",
            "of: Theirs",
            "unknown fedcorr_table9: row Theirs: available: FedAvg, ",
        ),
        (
            "fedcorr_table5.yaml",
            "columns: [JointOpt, Dividemix]",
            "columns: [JoinOpt]",
            "no cell ('FL', 'JoinOpt')",
        ),
    ],
)
def test_broken_files_are_refused_in_one_line(folder, file, old, new, message):
    path = folder / file
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ValueError) as error:
        load_table.__wrapped__(path.stem)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_unknown_names_list_the_legal_ones():
    with pytest.raises(
        ValueError, match=r"'fedcorr_table1' does not exist; one of fedcorr_table2, "
    ):
        load_table("fedcorr_table1")
    with pytest.raises(
        ValueError, match=r"'fedcorr_table2' does not exist; one of fedcorr_table1, "
    ):
        load_settings("fedcorr_table2")
    with pytest.raises(ValueError, match=r"no value \('Momentum', 'CIFAR-10'\)"):
        load_settings("fedcorr_table7").value("Momentum", "CIFAR-10")


def test_reading_needs_no_torch():
    program = "import sys, reports.published as p; p.find_inconsistencies(p.load_table('lsg_table1')); sys.exit('torch' in sys.modules)"
    root = Path(tables.__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", program], cwd=root, check=False).returncode == 0
