"""Report tables with bold entries and note marks, rendered as Markdown, LaTeX and HTML.

The output formats are Jinja2 templates in `reports/tables/templates/`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined

DASH = "–"
GREEK = {
    "rho": "ρ", "tau": "τ", "alpha": "α", "beta": "β", "gamma": "γ", "theta": "θ", "pi": "π",
    "epsilon": "ε", "mu2": "μ₂",
}  # fmt: skip
LATEX_SPECIAL = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "±": r"\,$\pm$\,", DASH: "--", "×": r"$\times$", "<": "$<$", ">": "$>$",
    "ρ": r"$\rho$", "τ": r"$\tau$", "α": r"$\alpha$", "β": r"$\beta$", "γ": r"$\gamma$",
    "θ": r"$\theta$", "ε": r"$\epsilon$", "π": r"$\pi$", "μ": r"$\mu$",
    "₁": r"$_1$", "₂": r"$_2$", "₃": r"$_3$",
}  # fmt: skip


@dataclass(frozen=True)
class TableEntry:
    """Text of one table cell or heading."""

    text: str
    bold: bool = False
    marks: tuple[str, ...] = ()  # letters of its notes


@dataclass(frozen=True)
class Column:
    """A column heading and the heading above it, empty if there is none."""

    group: str
    entry: TableEntry


@dataclass(frozen=True)
class Line:
    """One printed line. A table row has one line per source."""

    group: str
    label: TableEntry  # empty except on the first line of a row
    source: str  # configured, reproduced, published or difference
    entries: tuple[TableEntry, ...]


@dataclass(frozen=True)
class ReportTable:
    """A table ready to be rendered."""

    name: str
    title: str
    caption: str
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    notes: tuple[tuple[str, str], ...]  # (mark, text); the mark is empty for the whole table

    @property
    def column_groups(self) -> list[tuple[str, int]]:
        """Headings above the columns with their numbers of columns; empty without such headings."""
        groups = groupby(self.columns, key=lambda column: column.group)
        spans = [(group, len(list(members))) for group, members in groups]
        return spans if any(group for group, _ in spans) else []

    @property
    def line_groups(self) -> list[tuple[str, list[Line]]]:
        """Lines by the heading above them."""
        return [
            (group, list(members))
            for group, members in groupby(self.lines, key=lambda line: line.group)
        ]

    @property
    def lines_per_row(self) -> int:
        return len({line.source for line in self.lines})


@dataclass(frozen=True)
class Section:
    """A titled table without groups, and notes below it."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str]


@dataclass
class Notes:
    """Notes of a table. Each distinct note of a cell gets a letter, in order of first use."""

    general: list[str] = field(default_factory=list)
    marked: dict[str, str] = field(default_factory=dict)

    def add(self, text: str) -> None:
        """Add a note about the whole table."""
        if text not in self.general:
            self.general.append(text)

    def mark(self, texts: Iterable[str]) -> tuple[str, ...]:
        """Letters of the notes of one cell."""
        return tuple(
            self.marked.setdefault(text, letters(len(self.marked))) for text in dict.fromkeys(texts)
        )

    def as_list(self) -> tuple[tuple[str, str], ...]:
        """(mark, text) of all notes, those about the whole table first."""
        return (
            *(("", text) for text in self.general),
            *((mark, text) for text, mark in self.marked.items()),
        )


def letters(index: int) -> str:
    """Letters that count: a to z, then aa, ab and so on."""
    head, tail = divmod(index, 26)
    return (letters(head - 1) if head else "") + chr(ord("a") + tail)


def to_csv(lines: Sequence[Mapping[str, Any]]) -> str:
    """Lines with the same keys as CSV, numbers with at most six decimals. None is empty."""
    rounded = [
        {key: round(value, 6) if isinstance(value, float) else value for key, value in line.items()}
        for line in lines
    ]
    return pd.DataFrame(rounded, dtype=object).to_csv(index=False, lineterminator="\n")


def with_greek_letters(text: str) -> str:
    """A heading with names of Greek letters and indices replaced by their symbols."""
    names = rf"(?<![A-Za-z])({'|'.join(GREEK)})(?![A-Za-z0-9])"
    text = re.sub(names, lambda found: GREEK[found.group()], text)
    return re.sub(r"\bT_([123])\b", lambda found: "T" + "₁₂₃"[int(found.group(1)) - 1], text)


def escape_latex(text: str) -> str:
    """Escape text for LaTeX. A sign before a digit becomes a minus or plus in math mode."""
    plain = "".join(LATEX_SPECIAL.get(character, character) for character in text)
    return re.sub(r"(?<![\w.)}-])([+-])(?=\d)", r"$\1$", plain)


def markdown(table: ReportTable) -> str:
    return _PLAIN.get_template("table.md.jinja").render(table=table)


def sections_markdown(sections: Sequence[Section]) -> str:
    return _PLAIN.get_template("sections.md.jinja").render(sections=sections)


def latex(table: ReportTable) -> str:
    r"""A fragment for \input without float and caption. Requires booktabs and graphicx."""
    return _LATEX.get_template("table.tex.jinja").render(table=table)


def latex_document(table: ReportTable) -> str:
    """A LaTeX document that inputs the fragment, on paper large enough for every table."""
    return _LATEX.get_template("document.tex.jinja").render(table=table)


def html(table: ReportTable) -> str:
    """A table and its notes without styles. The class of a line is its source."""
    return _HTML.get_template("table.html.jinja").render(table=table, dash=DASH)


_PLAIN = Environment(
    loader=PackageLoader("reports.tables"),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_HTML = _PLAIN.overlay(autoescape=True)
# The default delimiters clash with the braces of LaTeX.
_LATEX = _PLAIN.overlay(
    block_start_string="<%",
    block_end_string="%>",
    variable_start_string="<<",
    variable_end_string=">>",
    comment_start_string="<#",
    comment_end_string="#>",
)
_LATEX.filters["tex"] = escape_latex
