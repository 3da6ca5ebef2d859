"""Published tables: complete, in printed order, and validated."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from published_checks import settings_value, validate

from methods.core.errors import UserError
from reports.published import tables
from reports.published.tables import load_settings, load_table, settings_names, table_names

# Cells, cells with a number, and the sums of values, standard deviations and ratios.
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


def test_table_names():
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


@pytest.mark.parametrize("name", TOTALS)
def test_files_fit_their_experiment(name):
    validate(load_table(name))


@pytest.mark.parametrize("name", settings_names())
def test_settings_have_a_value_per_column(name):
    table = load_settings(name)
    assert {len(row.values) for row in table.rows} == {len(table.columns)}


def test_dashes_have_a_reason():
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


def test_footnotes_select_cells():
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


def test_published_stages_fit_the_budget():
    """FedCorr's stages cost as much as 1000 rounds of FedAvg, 200 on Clothing1M (appendix B)."""
    for data, rounds in (("CIFAR-10", 1000), ("CIFAR-100", 1000), ("Clothing1M", 200)):
        clients, fraction, *stages = (
            float(settings_value(load_settings(name), row, data))
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


def test_settings_agree_with_the_result_tables():
    for name in ("fedcorr_table1", "fedcnml_table1"):
        settings = load_settings(name)
        for column in settings.columns:
            clients = settings_value(settings, "Number of clients", column.label)
            paper = [
                load_table(other)
                for other in table_names()
                if load_table(other).paper == settings.paper
            ]
            common = [table.experiment.common for table in paper]
            dataset = next(text for text in column.overrides if text.startswith("dataset="))
            common = [overrides for overrides in common if dataset in overrides]
            assert common and all(
                f"federation.num_clients={clients}" in overrides for overrides in common
            )
    levels = " ".join(str(value) for value in load_settings("fedcorr_table8").rows[0].values)
    for column in load_table("fedcorr_table2").columns:
        rho, tau = (override.partition("=")[2] for override in column.overrides)
        assert levels.count(f"({rho}, {tau})") == 1


@pytest.fixture
def data_dir(tmp_path, monkeypatch) -> Path:
    """A copy of the data files, which the loader reads."""
    copy = tmp_path / "published"
    shutil.copytree(tables.DATA_DIR, copy, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    monkeypatch.setattr(tables, "DATA_DIR", copy)
    return copy


CELL = "invalid cell ('Rofl', '(0.7, 10)') in fedcorr_table9.csv: expected ('RoFL', '(0.7, 10)')"
OF_ROFL = "invalid cell (RoFL, (0.7, 10)) in fedcorr_table9.csv:"
NOT_IN_TABLE_5 = "unknown column of fedcorr_table5 JoinOpt: did you mean JointOpt? available: "


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("fedcorr_table9.csv", "RoFL,", "Rofl,", CELL),
        (
            *("fedcorr_table9.csv", 'Ours,"(0.7, 10)",fedcorr,72.73,1.02,\n', ""),
            "invalid cell None in fedcorr_table9.csv: expected ('Ours', '(0.7, 10)')",
        ),
        ("fedcorr_table9.csv", ",rofl,", ",arfl,", f"{OF_ROFL} method 'arfl': expected 'rofl'"),
        ("fedcorr_table9.csv", "59.31,4.14", "59.31,", f"{OF_ROFL} std None: expected a number"),
        (
            *("fedcorr_table9.csv", "59.31", "5931"),
            f"{OF_ROFL} value 5931.0: expected an accuracy in [0, 100]",
        ),
        ("fedcorr_table9.csv", "59.31,4.14", ",", f"{OF_ROFL} dash: expected a note"),
        (
            *("fedcorr_table5.csv", ",not given", ",not run"),
            "skip of conf/experiment/fedcorr_table5.yaml: expected the cells that are not run",
        ),
        ("fedcorr_table13.csv", "135,,1.4", "135,,", "ratio None: expected a number"),
        (
            *("fedcorr_table9.yaml", "metric: best", "metric: worst"),
            "invalid fedcorr_table9.metric='worst': expected best, last10 or target_cost",
        ),
        (
            *("fedcorr_table13.yaml", "target: 50", "target: null"),
            "invalid fedcorr_table13.target=None: expected a number for metric target_cost",
        ),
        (
            *("fedcorr_table9.yaml", "scale:", "size:"),
            "unknown key fedcorr_table9.size: available: name, paper, ",
        ),
        ("fedcorr_table9.yaml", "year: 2022\n", "", "missing fedcorr_table9.year"),
        (
            *("fedcorr_table9.yaml", "kind: least_difference", "kind: most"),
            "invalid fedcorr_table9.claims.kind='most': expected least_difference, least_ratio or",
        ),
        (
            *("fedcorr_table9.yaml", "row: Ours", "row: Theirs"),
            "unknown row of fedcorr_table9 Theirs: available: FedAvg, ",
        ),
        (
            *("fedcorr_table5.yaml", "columns: [JointOpt, Dividemix]", "columns: [JoinOpt]"),
            NOT_IN_TABLE_5,
        ),
    ],
)
def test_invalid_files_are_one_line_errors(data_dir, file, old, new, message):
    path = data_dir / file
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(UserError) as error:
        validate(load_table.__wrapped__(path.stem))
    assert message in str(error.value) and "\n" not in str(error.value)


def test_unknown_names_list_the_available_ones():
    with pytest.raises(
        UserError, match="unknown published table fedcorr_table1: .* fedcorr_table2"
    ):
        load_table("fedcorr_table1")
    with pytest.raises(UserError, match="unknown settings table fedcorr_table2: .* fedcorr_table1"):
        load_settings("fedcorr_table2")


def test_reading_tables_does_not_import_torch():
    program = (
        "import sys, reports.published.tables as p;"
        "p.load_table('lsg_table1'); sys.exit('torch' in sys.modules)"
    )
    root = Path(tables.__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", program], cwd=root, check=False).returncode == 0
