"""Rendered tables: golden files of a fixed set of records, and rules for all tables."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from published_checks import settings_value

from reports import build, compare
from reports.frame.load import load_runs
from reports.published.tables import load_settings, load_table, settings_names, table_names
from reports.tables.comparison import comparison_csv, comparison_table
from reports.tables.rendering import (
    DASH,
    Notes,
    TableEntry,
    escape_latex,
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


def entries_by_label(results: Results) -> dict[str, list[TableEntry]]:
    """Reproduced entries under the row label, the others under "LABEL SOURCE"."""
    found = {}
    label = ""
    for line in comparison_table(results).lines:
        label = line.label.text or label
        key = label if line.source == "reproduced" else f"{label} {line.source}"
        found[key] = list(line.entries)
    return found


def results_without_runs(name: str) -> Results:
    table = load_table(name)
    return Results(table, "paper", table.metric, {})


@pytest.fixture
def built_dir(frozen_conf, tmp_path):
    """Output directory of reports.build for the records in records/good."""
    tables = "table=fedcorr_table7,fedcorr_table9,fedcorr_table13"
    assert build.main([f"runs={HERE / 'records' / 'good'}", f"out={tmp_path}", tables]) == 0
    return tmp_path


@pytest.mark.parametrize(
    "file", sorted(path.relative_to(GOLDEN) for path in GOLDEN.rglob("*_table*")), ids=str
)
def test_build_writes_the_golden_file(built_dir, file):
    written, golden = built_dir / file, GOLDEN / file
    assert written.read_text(encoding="utf-8") == golden.read_text(encoding="utf-8"), (
        f"{file} has changed; see {written}"
    )


def test_build_writes_no_other_files(built_dir):
    written = {path.relative_to(built_dir) for path in built_dir.rglob("*.*")}
    assert written == {path.relative_to(GOLDEN) for path in GOLDEN.rglob("*_table*")}


def test_compare_writes_the_golden_file(capsys, tmp_path):
    arguments = [
        f"runs={HERE / 'records' / 'good'}",
        "cols=partition.name",
        "scale=laptop",
        "baseline=fedavg",
        "metric=summary.best",
        "train.lr=0.01",
        "method.mu=1",
    ]
    assert compare.main([*arguments, f"out={tmp_path / 'compare.md'}"]) == 0
    written, golden = tmp_path / "compare.md", GOLDEN / "compare.md"
    assert written.read_text(encoding="utf-8") == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", table_names())
def test_tables_are_rectangular_and_have_all_published_numbers(name):
    results = results_without_runs(name)
    table, rendered = results.table, comparison_table(results)
    for line in markdown(rendered).splitlines():
        assert not line.startswith("|") or line.count("|") == 3 + len(table.column_labels)
    for line in latex(rendered).splitlines():
        if line.endswith(r"\\") and "multicolumn" not in line:
            assert len(re.findall(r"(?<!\\)&", line)) == 1 + len(table.column_labels)
    texts = {source: [] for source in ("reproduced", "published", "difference")}
    for line in rendered.lines:
        texts[line.source] += [entry.text for entry in line.entries]
    decimals = 0 if table.metric == "target_cost" else 2
    for cell, text in zip(table.cells, texts["published"], strict=True):
        assert text.startswith(cell.note if cell.value is None else f"{cell.value:.{decimals}f}")
    assert {*texts["reproduced"], *texts["difference"]} == {DASH}


@pytest.mark.parametrize(
    ("name", "row", "column"),
    [
        ("fedcorr_table2", "Ours (FedCorr)", 6),  # not the centralized DivideMix
        ("fedcorr_table5", "FL", 6),  # methods are the columns
        ("fedcorr_table11", "Ours (FedCorr)", 0),  # lowest cost
        ("lsg_table5", "0.7", 1),  # compared with the other cell of the row
        ("fedcnml_table2", "ρ=0.8", 1),
    ],
)
def test_best_is_bold(name, row, column):
    assert entries_by_label(results_without_runs(name))[f"{row} published"][column].bold


@pytest.mark.parametrize(
    ("name", "row", "column"),
    [("fedcorr_table2", "DivideMix", 0), ("lsg_table4", "Forward", 0), ("fedcorr_table5", "CL", 5)],
)
def test_centralized_references_are_not_bold(name, row, column):
    lines = comparison_table(results_without_runs(name)).lines
    labels = [line.label.text for line in lines if line.source == "reproduced"]
    published = [line for line in lines if line.source == "published"]
    assert not published[labels.index(row)].entries[column].bold


def test_one_bold_value_per_condition():
    """FedCorr's Table 2 has 7 noise levels; LSG's Table I has 3 datasets with 8 and the average."""
    for name, number in (("fedcorr_table2", 7), ("lsg_table1", 27), ("fedcorr_table6", 7)):
        lines = comparison_table(results_without_runs(name)).lines
        assert sum(entry.bold for line in lines for entry in line.entries) == number


@pytest.mark.parametrize(("seeds", "expected"), [(6, ["FedProx"]), (5, []), (1, [])])
def test_bold_reproduced_values_are_supported_by_paired_tests(seeds, expected):
    """All signs agree: p is 2 / 2^6 = 0.031 for six seeds and 0.0625 for five."""
    values = {"FedAvg": 60.0, "FedProx": 61.0, "Ours": 50.0}
    cells = {
        (row, "(0.7, 10)"): ReproducedCell(
            {seed: value + seed for seed in range(seeds)}, seeds, "mean", ()
        )
        for row, value in values.items()
    }
    found = entries_by_label(Results(load_table("fedcorr_table9"), "paper", "best", cells))
    bold = [label for label, entries in found.items() if entries[0].bold]
    assert bold == [*expected, "Ours (FedCorr) published"]


def test_a_value_without_rivals_is_not_bold():
    cells = {("FedAvg", "(0.7, 10)"): ReproducedCell({1: 60.0}, 1, "mean", ())}
    found = entries_by_label(Results(load_table("fedcorr_table9"), "paper", "best", cells))
    assert not found["FedAvg"][0].bold


def test_inconsistencies_are_marked_at_their_cell():
    table = comparison_table(results_without_runs("fedcorr_table11"))
    entry = next(line for line in table.lines if line.source == "published").entries[0]
    assert (
        dict(table.notes)[entry.marks[0]]
        == "Inconsistency in the paper: 5 of 5 printed ratios do not fit 150; all fit 140."
    )
    notes = comparison_table(results_without_runs("lsg_table1")).notes
    assert any("98.98 is consistent with both" in text for _, text in notes)


def test_cost_to_reach_a_target(frozen_conf):
    """Accuracy 0.50 is reached after 210 participations with seed 1, 250 with 2, not with 3."""
    results = collect_results(
        load_table("fedcorr_table13"), load_runs([HERE / "records"]), "laptop"
    )
    cell = results.cells["FedAvg", "rho=0.4 / tau=0.5"]
    assert cell.values == {1: 210.0, 2: 250.0} and (cell.value, cell.num_runs) == (210.0, 3)
    warning = "bad-curve/curve.csv: last accuracy differs from record.json; excluded"
    assert any(line.endswith(warning) for line in results.warnings)
    assert "140.0" in comparison_csv(results)


def test_settings_that_differ_are_marked(frozen_conf):
    """The frozen configuration has theta 0.6 and (10000 - 500) / 10 / 2 = 475 rounds per stage."""
    results = collect_settings(load_settings("fedcorr_table7"), "paper")
    assert results.configured["Rounds in stage 2", "CIFAR-10"] == 475.0
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
        "fedcorr_table7: column Clothing1M not configured:"
        " unknown dataset clothing1m: available: cifar10, cifar100, mnist",
    )


def test_configured_settings_equal_the_paper():
    """The values of FedCorr's Table 8 depend on the noise level and are set by the experiments."""
    for name in settings_names():
        results = collect_settings(load_settings(name), "paper")
        assert results.warnings == ()
        for (row, column), value in results.configured.items():
            matches = values_match(value, settings_value(results.table, row, column))
            assert matches or name == "fedcorr_table8", (name, row, column)


def test_formulas():
    config = {"a.b": 10, "a.c": 4, "d.name": "lenet5"}
    assert eval_formula("a.b", config) == 10 and eval_formula("d.name", config) == "lenet5"
    assert eval_formula("(1 - a.c / a.b) * a.b", config) == pytest.approx(6.0)


def test_values_match():
    assert values_match("resnet50", "pre-trained ResNet-50")
    assert not values_match("resnet18", "ResNet-34")
    assert values_match(499.985, 500) and not values_match(475.0, 500)


def test_latex_escapes():
    text = escape_latex("a_b & 50% ± 3 -1.5 +2 w/o 2-3")
    assert text == r"a\_b \& 50\% \,$\pm$\, 3 $-$1.5 $+$2 w/o 2-3"
    assert escape_latex(with_greek_letters("mu2=15")) == r"$\mu$$_2$=15"


def test_greek_letters():
    headings = ("rho=0.4", "alpha_Jo", "spirit T_2")
    assert [with_greek_letters(text) for text in headings] == ["ρ=0.4", "α_Jo", "spirit T₂"]


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
def test_latex_compiles(name, tmp_path):
    table = comparison_table(results_without_runs(name))
    (tmp_path / f"{name}.tex").write_text(latex(table), encoding="utf-8")
    documents = {
        "alone.tex": latex_document(table),
        "float.tex": FLOAT.replace("NAME", name),
    }
    for file, text in documents.items():
        (tmp_path / file).write_text(text, encoding="utf-8")
        command = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", file]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:]
        assert "Overfull" not in done.stdout
