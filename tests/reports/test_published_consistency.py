"""What does not add up in the published tables is found by computing it, and so is any slip in copying them."""

from dataclasses import replace
from typing import Any

import pytest

from reports.published import (
    Finding,
    PublishedTable,
    find_inconsistencies,
    load_table,
    table_names,
    tables,
)

# Everything in the three papers that does not add up: table, kind, row, column, printed, expected.
FINDINGS = {
    ("fedcorr_table9", "setting", "", "", 0.5, 0.0),
    ("fedcorr_table11", "ratio", "Ours", "rho=0.0 / tau=0.0", 150.0, 140.0),
    ("lsg_table1", "average", "MNIST / Ours", "Symmetric / 0.4", 99.98, 98.98),
    ("fedcnml_table2", "repeat", "rho=0.4", "mu2=5", 93.49, None),
    ("fedcnml_table3", "repeat", "Federated / Fed-CNML", "rho=0.4", 93.85, 93.49),
    ("fedcnml_table5", "repeat", "Fed-CNML", "rho=0.4", 93.49, None),
    ("fedcnml_table4", "repeat", "Centralized / DivideMix", "rho=0.0", 76.21, 75.58),
    ("fedcnml_table3", "claim", "Centralized / DivideMix", "", 1.31, 1.10),
    ("fedcnml_table3", "claim", "Federated / Fed-CNML", "", 1.82, 1.52),
    ("fedcnml_table4", "claim", "Centralized / DivideMix", "", 4.87, 4.06),
    ("fedcnml_table4", "claim", "Federated / Fed-CNML", "", 5.99, 4.99),
    ("fedcnml_table3", "line", "Federated / RoFL", "rho=0.2", 88.29, None),
    ("fedcnml_table3", "line", "Federated / RoFL", "rho=1.0", 86.40, None),
}


def with_cell(table: PublishedTable, row: str, column: str, **change: Any) -> PublishedTable:
    wanted = table.cell(row, column)
    return replace(
        table,
        cells=tuple(replace(cell, **change) if cell is wanted else cell for cell in table.cells),
    )


def new_findings(table: PublishedTable) -> list[Finding]:
    known = find_inconsistencies(load_table(table.name))
    return [finding for finding in find_inconsistencies(table) if finding not in known]


def test_findings_are_exactly_the_known_ones():
    found = [
        finding for name in table_names() for finding in find_inconsistencies(load_table(name))
    ]
    places = [(f.table, f.kind, f.row, f.column, f.printed, f.expected) for f in found]
    assert len(places) == len(set(places))
    assert set(places) == FINDINGS


def test_six_differences_divided_by_five():
    messages = [
        f.message
        for name in ("fedcnml_table3", "fedcnml_table4")
        for f in find_inconsistencies(load_table(name))
        if f.kind == "claim"
    ]
    assert len(messages) == 4
    assert all("the 6 differences" in message and "divided by 5" in message for message in messages)


def test_no_misprint_is_written_into_the_data():
    """What should have been printed is computed: no file of the table holds it."""
    for name, expected in (
        ("fedcorr_table11", "140"),
        ("lsg_table1", "98.98"),
        ("fedcnml_table4", "75.58"),
    ):
        table = load_table(name)
        misprinted = next(
            f for f in find_inconsistencies(table) if f.kind in ("ratio", "average", "repeat")
        )
        assert table.cell(misprinted.row, misprinted.column).note == ""
        assert expected not in (tables.FOLDER / f"{name}.yaml").read_text(encoding="utf-8")


def test_corrected_misprints_are_silent():
    fixed = with_cell(load_table("lsg_table1"), "MNIST / Ours", "Symmetric / 0.4", value=98.98)
    assert find_inconsistencies(fixed) == []
    fixed = with_cell(load_table("fedcorr_table11"), "Ours", "rho=0.0 / tau=0.0", value=140.0)
    assert find_inconsistencies(fixed) == []


def test_any_wrong_accuracy_in_an_averaged_row_is_found():
    table = load_table("lsg_table1")
    for row in table.rows[1:5]:
        for column in table.column_labels:
            value = table.cell(row.label, column).value
            assert value is not None
            found = new_findings(with_cell(table, row.label, column, value=value - 0.9))
            assert ("average", row.label) in {(finding.kind, finding.row) for finding in found}


def test_any_wrong_cost_or_ratio_is_found():
    for name in ("fedcorr_table12", "fedcorr_table13"):
        table = load_table(name)
        for cell in table.cells:
            if cell.ratio is not None and cell.value is not None:
                found = new_findings(
                    with_cell(table, cell.row, cell.column, ratio=cell.ratio + 0.2)
                )
                assert [(f.row, f.column, f.expected) for f in found] == [
                    (cell.row, cell.column, cell.ratio)
                ]
                found = new_findings(
                    with_cell(table, cell.row, cell.column, value=cell.value * 1.1)
                )
                assert [(f.row, f.column) for f in found] == [(cell.row, cell.column)]


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
    value = load_table(name).cell(row, column).value or 0.0
    found = [
        f
        for f in new_findings(with_cell(load_table(name), row, column, value=value + 0.1))
        if f.kind == "repeat"
    ]
    assert [(f.row, f.column, f.expected) for f in found] == [(row, column, value)]
    assert source in found[0].message


def test_a_repeated_deviation_that_differs_is_found():
    found = new_findings(
        with_cell(load_table("fedcorr_table6"), "Ours", "rho=0.8 / tau=0.5", std=0.71)
    )
    assert [finding.kind for finding in found] == ["repeat"]


def test_an_earlier_paper_is_not_judged_by_a_later_quotation():
    assert find_inconsistencies(load_table("fedcorr_table3")) == []


def test_dashes_agree_with_the_best_accuracies():
    cost = load_table("fedcorr_table11")
    found = new_findings(with_cell(cost, "FedAvg", "rho=0.6 / tau=0.5", value=None, ratio=None))
    assert [(f.kind, f.row) for f in found] == [("reached", "FedAvg")] and "81.22" in found[
        0
    ].message
    found = new_findings(with_cell(cost, "ARFL", "rho=0.8 / tau=0.5", value=510.0, ratio=1.0))
    assert ("reached", "ARFL") in {(f.kind, f.row) for f in found}


def test_a_claim_that_the_table_does_not_bear_out_is_found():
    found = new_findings(
        with_cell(load_table("fedcorr_table4"), "FedProx", "(0.7, 10)", value=84.32)
    )
    assert [(f.kind, f.printed, f.expected) for f in found] == [("claim", 7.0, 6.2)]
