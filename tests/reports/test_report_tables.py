"""Tables as files: golden Markdown, LaTeX and CSV from a frozen tree of records, and rules that all tables keep."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from reports import build, compare
from reports.frame.load import load_runs
from reports.published import load as published
from reports.published import load_settings, names
from reports.tables.comparison import comparison_table, to_csv
from reports.tables.rendering import (
    DASH,
    Notes,
    TableEntry,
    escape,
    latex,
    latex_document,
    letters,
    markdown,
    with_greek_letters,
)
from reports.tables.results import ReproducedCell, Results, collect_results
from reports.tables.settings import collect_settings, eval_formula, settings_table, values_match

HERE = Path(__file__).parent
GOLDEN = HERE / "golden"


def as_lines(results: Results) -> dict[str, list[TableEntry]]:
    """Row label -> its reproduced entries, and "label published" -> the paper's."""
    found = {}
    label = ""
    for line in comparison_table(results).lines:
        label = line.label.text or label
        found[label if line.source == "reproduced" else f"{label} {line.source}"] = list(
            line.entries
        )
    return found


def nothing(name: str) -> Results:
    """The table before anything ran."""
    return Results(published(name), "paper", {}, ())


@pytest.fixture
def built(frozen_conf, tmp_path):
    code = build.main(
        [
            f"runs={HERE / 'records' / 'good'}",
            f"out={tmp_path}",
            "table=fedcorr_table7,fedcorr_table9,fedcorr_table13",
        ]
    )
    assert code == 0
    return tmp_path


@pytest.mark.parametrize(
    "file", sorted(path.relative_to(GOLDEN) for path in GOLDEN.rglob("*_table*")), ids=str
)
def test_golden(built, file):
    new, old = built / file, GOLDEN / file
    assert new.read_text(encoding="utf-8") == old.read_text(encoding="utf-8"), (
        f"{file} has changed; see {new}"
    )


def test_golden_files_are_all_that_is_written(built):
    written = {path.relative_to(built) for path in built.rglob("*.*")}
    assert written == {path.relative_to(GOLDEN) for path in GOLDEN.rglob("*_table*")}


def test_golden_comparison(capsys, tmp_path):
    arguments = [
        f"runs={HERE / 'records' / 'good'}",
        "cols=partition.name",
        "scale=laptop",
        "baseline=fedavg",
        "train.lr=0.01",
        "method.mu=1",
    ]
    assert compare.main([*arguments, f"out={tmp_path / 'compare.md'}"]) == 0
    assert (tmp_path / "compare.md").read_text(encoding="utf-8") == (
        GOLDEN / "compare.md"
    ).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", names())
def test_every_table_is_rectangular_and_has_all_printed_numbers(name):
    results = nothing(name)
    table, text = results.table, comparison_table(results)
    for line in markdown(text).splitlines():
        assert not line.startswith("|") or line.count("|") == 3 + len(table.column_labels)
    for line in latex(text).splitlines():
        if line.endswith(r"\\") and "multicolumn" not in line:
            assert len(re.findall(r"(?<!\\)&", line)) == 1 + len(table.column_labels)
    printed = [
        entry.text for line in text.lines if line.source == "published" for entry in line.entries
    ]
    decimals = 0 if table.metric == "target_cost" else 2
    for cell, entry in zip(table.cells, printed, strict=True):
        assert entry.startswith(cell.note if cell.value is None else f"{cell.value:.{decimals}f}")
    assert {
        entry.text for line in text.lines if line.source != "published" for entry in line.entries
    } == {DASH}


@pytest.mark.parametrize(
    ("name", "row", "column"),
    [
        ("fedcorr_table2", "Ours (FedCorr)", 6),  # not the centralized DivideMix
        ("fedcorr_table5", "FL", 6),  # methods are the columns
        ("fedcorr_table11", "Ours (FedCorr)", 0),  # the lowest cost
        ("lsg_table5", "0.7", 1),  # the row's other cell
        ("fedcnml_table2", "ρ=0.8", 1),
    ],
)
def test_best_is_bold(name, row, column):
    assert as_lines(nothing(name))[f"{row} published"][column].bold


@pytest.mark.parametrize(
    ("name", "row", "column"),
    [("fedcorr_table2", "DivideMix", 0), ("lsg_table4", "Forward", 0), ("fedcorr_table5", "CL", 5)],
)
def test_references_are_not_bold(name, row, column):
    lines = [line for line in comparison_table(nothing(name)).lines if line.source == "published"]
    labels = [
        line.label.text
        for line in comparison_table(nothing(name)).lines
        if line.source == "reproduced"
    ]
    first = lines[labels.index(row)]
    assert not first.entries[column].bold


def test_every_column_has_one_best_per_condition():
    """FedCorr's Table 2 has seven noise levels, LSG's Table I eight and the average for each of three data sets."""
    for name, number in (("fedcorr_table2", 7), ("lsg_table1", 27), ("fedcorr_table6", 7)):
        bold = [
            entry
            for line in comparison_table(nothing(name)).lines
            for entry in line.entries
            if entry.bold
        ]
        assert len(bold) == number


def test_bold_of_ours_is_by_ours_alone():
    places = {
        ("FedAvg", "(0.7, 10)"): 60.0,
        ("FedProx", "(0.7, 10)"): 61.0,
        ("Ours", "(0.7, 10)"): 50.0,
    }
    cells = {place: ReproducedCell({1: value}, 1, "mean", ()) for place, value in places.items()}
    lines = as_lines(Results(published("fedcorr_table9"), "paper", cells, ()))
    assert [label for label, entries in lines.items() if entries[0].bold] == [
        "FedProx",
        "Ours (FedCorr) published",
    ]


def test_a_single_number_of_ours_is_not_the_best():
    cells = {("FedAvg", "(0.7, 10)"): ReproducedCell({1: 60.0}, 1, "mean", ())}
    assert not as_lines(Results(published("fedcorr_table9"), "paper", cells, ()))["FedAvg"][0].bold


def test_misprints_are_noted_where_they_stand():
    text = comparison_table(nothing("fedcorr_table11"))
    entry = next(line for line in text.lines if line.source == "published").entries[0]
    assert (
        dict(text.notes)[entry.marks[0]]
        == "In print: 5 of 5 printed ratios do not fit 150; all fit 140."
    )
    assert any(
        "98.98 fits both" in note for _, note in comparison_table(nothing("lsg_table1")).notes
    )


def test_costs_to_a_target(frozen_conf):
    """Accuracy 0.50 is first reached after 210 visits under seed 1, 250 under seed 2, never under seed 3."""
    results = collect_results(published("fedcorr_table13"), load_runs([HERE / "records"]), "laptop")
    cell = results.cells["FedAvg", "rho=0.4 / tau=0.5"]
    assert cell.values == {1: 210.0, 2: 250.0} and (cell.value, cell.num_runs) == (210.0, 3)
    assert any(
        line.endswith("bad-curve/curve.csv: does not end as record.json says; left out")
        for line in results.warnings
    )
    assert "140.0" in to_csv(results)


def test_settings_differ_only_where_they_do(frozen_conf):
    """The frozen configuration has theta 0.6 and equal second and third stages, (10000 - 500) / 10 / 2 = 475 rounds."""
    results = collect_settings(load_settings("fedcorr_table7"), "paper")
    assert results.ours["Rounds in stage 2", "CIFAR-10"] == 475.0
    marked = [
        (line.label.text, index)
        for line in settings_table(results).lines
        for index, entry in enumerate(line.entries)
        if entry.marks
    ]
    assert marked == [
        ("Rounds in stage 2 (T₂)", 0),
        ("Rounds in stage 3 (T₃)", 0),
        ("Confidence threshold (θ)", 0),
    ]
    assert results.warnings == (
        "fedcorr_table7: column Clothing1M not configured: dataset=clothing1m: conf/dataset has no clothing1m.yaml",
    )


def test_settings_of_the_real_configuration_equal_the_paper():
    for name in ("fedcorr_table1", "fedcorr_table7", "fedcnml_table1"):
        results = collect_settings(load_settings(name), "paper")
        assert results.warnings == ()
        for (row, column), value in results.ours.items():
            assert values_match(value, results.table.value(row, column)), (name, row, column, value)


def test_formulas():
    config = {"a.b": 10, "a.c": 4, "d.name": "lenet5"}
    assert eval_formula("a.b", config) == 10 and eval_formula("d.name", config) == "lenet5"
    assert eval_formula("(1 - a.c / a.b) * a.b", config) == pytest.approx(6.0)
    assert values_match("resnet50", "pre-trained ResNet-50") and not values_match(
        "resnet18", "ResNet-34"
    )
    assert values_match(499.985, 500) and not values_match(475.0, 500)


def test_text_for_latex():
    assert escape(
        "a_b & 50% ± 3 -1.5 +2 w/o 2-3"
    ) == r"a\_b \& 50\%  \,$\pm$\,  3 $-$1.5 $+$2 w/o 2-3".replace("  ", " ")
    assert (
        with_greek_letters("rho=0.4") == "ρ=0.4"
        and with_greek_letters("alpha_Jo") == "α_Jo"
        and with_greek_letters("spirit T_2") == "spirit T₂"
    )
    assert escape(with_greek_letters("mu2=15")) == r"$\mu$$_2$=15"


def test_note_letters():
    assert [letters(index) for index in (0, 25, 26, 27, 52)] == ["a", "z", "aa", "ab", "ba"]
    notes = Notes()
    assert notes.mark(["x", "y", "x"]) == ("a", "b") and notes.mark(["y"]) == ("b",)
    notes.add("whole table")
    assert notes.as_list() == (("", "whole table"), ("a", "x"), ("b", "y"))


PREAMBLE = r"\documentclass{article}\usepackage{booktabs,graphicx}"
FLOAT = PREAMBLE + r"\begin{document}\begin{table}\input{NAME}\end{table}\end{document}"


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
@pytest.mark.parametrize("name", ["lsg_table1", "fedcorr_table11"])
def test_latex_compiles_alone_and_in_a_float(name, tmp_path):
    text = comparison_table(nothing(name))
    (tmp_path / f"{name}.tex").write_text(latex(text), encoding="utf-8")
    for file, page in (
        ("alone.tex", latex_document(text, name)),
        ("float.tex", FLOAT.replace("NAME", name)),
    ):
        (tmp_path / file).write_text(page, encoding="utf-8")
        command = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", file]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:]
        assert "Overfull" not in done.stdout
