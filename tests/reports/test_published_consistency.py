"""Inconsistencies of the published tables. The same checks find errors in copying them."""

from dataclasses import replace
from typing import Any

import pytest
from published_checks import Finding, find_inconsistencies

from reports.published.tables import (
    DATA_DIR,
    INCONSISTENCY,
    PublishedTable,
    load_table,
    table_names,
)

# All inconsistencies of the three papers: table, row, column, start and end of the message.
FINDINGS = {
    ("fedcorr_table9", "", "", "appendix C.1: noise.tau=0.5;", "official code: noise.tau=0.0"),
    (
        *("fedcorr_table11", "Ours", "rho=0.0 / tau=0.0"),
        *("5 of 5 printed ratios do not fit 150;", "all fit 140"),
    ),
    (
        *("lsg_table1", "MNIST / Ours", "Symmetric / 0.4"),
        *("the printed average is 98.61,", "98.98 is consistent with both"),
    ),
    ("fedcnml_table2", "rho=0.4", "mu2=5", "93.49 here, 93.85±0.36 in", "for the same run"),
    (
        *("fedcnml_table3", "Federated / Fed-CNML", "rho=0.4"),
        *("93.85±0.36 here, 93.49 in fedcnml_table2,", "for the same run"),
    ),
    ("fedcnml_table5", "Fed-CNML", "rho=0.4", "93.49 here, 93.49 in", "for the same run"),
    (
        *("fedcnml_table4", "Centralized / DivideMix", "rho=0.0"),
        *("76.21±0.22 here, 75.58±0.14 in fedcorr_table3", "for the same run"),
    ),
    (
        *("fedcnml_table3", "Centralized / DivideMix", ""),
        *(
            "section 4.4 states a mean difference of 1.31, the 6 differences give 1.10",
            "5 is 1.316",
        ),
    ),
    (
        *("fedcnml_table3", "Federated / Fed-CNML", ""),
        *(
            "section 4.4 states a mean difference of 1.82, the 6 differences give 1.52",
            "5 is 1.822",
        ),
    ),
    (
        *("fedcnml_table4", "Centralized / DivideMix", ""),
        *(
            "section 4.4 states a mean difference of 4.87, the 6 differences give 4.06",
            "5 is 4.876",
        ),
    ),
    (
        *("fedcnml_table4", "Federated / Fed-CNML", ""),
        *(
            "section 4.4 states a mean difference of 5.99, the 6 differences give 4.99",
            "5 is 5.990",
        ),
    ),
    (
        *("fedcnml_table3", "Federated / RoFL", "rho=0.2"),
        *("88.29±0.20 lies on the straight line through 88.33±0.07", "in standard deviation"),
    ),
    (
        *("fedcnml_table3", "Federated / RoFL", "rho=1.0"),
        *("86.40±0.47 lies on the straight line through 87.77±0.83", "in standard deviation"),
    ),
}


def with_cell(table: PublishedTable, row: str, column: str, **change: Any) -> PublishedTable:
    """The table with one changed cell."""
    cells = [
        replace(cell, **change) if (cell.row, cell.column) == (row, column) else cell
        for cell in table.cells
    ]
    return replace(table, cells=tuple(cells))


def new_findings(table: PublishedTable) -> list[Finding]:
    known = find_inconsistencies(load_table(table.name))
    return [finding for finding in find_inconsistencies(table) if finding not in known]


def test_all_inconsistencies_are_known():
    found = [
        (name, finding)
        for name in table_names()
        for finding in find_inconsistencies(load_table(name))
    ]
    assert len(found) == len(FINDINGS)
    expected = {entry[:3]: entry[3:] for entry in FINDINGS}
    for name, finding in found:
        start, end = expected.pop((name, finding.row, finding.column))
        assert finding.message.startswith(start) and finding.message.endswith(end)


@pytest.mark.parametrize("name", table_names())
def test_inconsistencies_are_footnotes(name):
    """reports/published/inconsistencies.csv has what the checks find."""
    table = load_table(name)
    notes = [note for note in table.footnotes if note.text.startswith(INCONSISTENCY)]
    found = [
        ("".join(note.rows), "".join(note.columns), note.text.removeprefix(INCONSISTENCY))
        for note in notes
    ]
    assert found == [
        (finding.row, finding.column, f"{finding.message}.")
        for finding in find_inconsistencies(table)
    ]


def test_corrected_values_are_not_in_the_data():
    for name, row, column, corrected in (
        ("fedcorr_table11", "Ours", "rho=0.0 / tau=0.0", "140"),
        ("lsg_table1", "MNIST / Ours", "Symmetric / 0.4", "98.98"),
        ("fedcnml_table4", "Centralized / DivideMix", "rho=0.0", "75.58"),
    ):
        assert load_table(name).cell(row, column).note == ""
        assert corrected not in (DATA_DIR / f"{name}.yaml").read_text(encoding="utf-8")


def test_corrected_tables_are_consistent():
    corrected = with_cell(load_table("lsg_table1"), "MNIST / Ours", "Symmetric / 0.4", value=98.98)
    assert find_inconsistencies(corrected) == []
    corrected = with_cell(load_table("fedcorr_table11"), "Ours", "rho=0.0 / tau=0.0", value=140.0)
    assert find_inconsistencies(corrected) == []


def test_any_wrong_accuracy_in_an_averaged_row_is_found():
    table = load_table("lsg_table1")
    for row in table.rows[1:5]:
        for column in table.column_labels:
            value = table.cell(row.label, column).value
            assert value is not None
            found = new_findings(with_cell(table, row.label, column, value=value - 0.9))
            assert any(
                finding.row == row.label and finding.message.startswith("the printed average is")
                for finding in found
            )


@pytest.mark.parametrize("name", ["fedcorr_table12", "fedcorr_table13"])
def test_any_wrong_cost_or_ratio_is_found(name):
    table = load_table(name)
    for cell in table.cells:
        if cell.ratio is None or cell.value is None:
            continue
        key = (cell.row, cell.column)
        found = new_findings(with_cell(table, *key, ratio=cell.ratio + 0.2))
        assert [(finding.row, finding.column) for finding in found] == [key]
        computed = float(found[0].message.rpartition(" ")[2])
        assert computed == pytest.approx(cell.ratio, abs=0.051)
        found = new_findings(with_cell(table, *key, value=cell.value * 1.1))
        assert [(finding.row, finding.column) for finding in found] == [key]


@pytest.mark.parametrize(
    ("name", "row", "column", "source"),
    [
        ("fedcorr_table6", "Ours", "rho=0.6 / tau=0.0", "fedcorr_table2"),
        ("fedcorr_table10", "ResNet-18", "rho=0.6 / tau=0.0", "fedcorr_table6"),
        ("lsg_table5", "Pairwise / 0.3", "Ours", "lsg_table1"),
        ("lsg_table6", "Pairwise / 0.3", "Distillation Loss Term / KL Div", "lsg_table5"),
        ("fedcnml_table2", "rho=0.6", "mu2=0", "fedcnml_table5"),
        ("fedcnml_table3", "Centralized / JointOpt", "rho=0.8", "fedcorr_table2"),
        ("fedcnml_table3", "Federated / RoFL", "rho=0.6", "fedcorr_table2"),
        ("fedcnml_table4", "Federated / FedCorr", "rho=0.0", "fedcorr_table3"),
    ],
)
def test_a_repeated_value_that_differs_is_found(name, row, column, source):
    value = load_table(name).cell(row, column).value
    assert value is not None
    changed = with_cell(load_table(name), row, column, value=value + 0.1)
    found = [finding for finding in new_findings(changed) if "for the same run" in finding.message]
    assert [(finding.row, finding.column) for finding in found] == [(row, column)]
    assert source in found[0].message and f"{value:.2f}" in found[0].message


def test_a_repeated_standard_deviation_that_differs_is_found():
    changed = with_cell(load_table("fedcorr_table6"), "Ours", "rho=0.8 / tau=0.5", std=0.71)
    (finding,) = new_findings(changed)
    assert "±0.71 here" in finding.message and finding.message.endswith("for the same run")


def test_later_papers_are_not_compared_with_earlier_ones():
    assert find_inconsistencies(load_table("fedcorr_table3")) == []


@pytest.mark.parametrize(
    ("row", "column", "change", "message"),
    [
        (
            *("FedAvg", "rho=0.6 / tau=0.5", {"value": None, "ratio": None}),
            "80 is not reached, but the mean best accuracy is 81.22",
        ),
        (
            *("ARFL", "rho=0.8 / tau=0.5", {"value": 510.0, "ratio": 1.0}),
            "80 is reached, but the mean best accuracy is",
        ),
    ],
)
def test_targets_agree_with_the_best_accuracies(row, column, change, message):
    found = new_findings(with_cell(load_table("fedcorr_table11"), row, column, **change))
    assert any(finding.row == row and finding.message.startswith(message) for finding in found)


def test_a_claim_that_contradicts_the_table_is_found():
    changed = with_cell(load_table("fedcorr_table4"), "FedProx", "(0.7, 10)", value=84.32)
    assert [finding.message for finding in new_findings(changed)] == [
        "section 4.2 states at least 7, the table gives 6.20"
    ]
