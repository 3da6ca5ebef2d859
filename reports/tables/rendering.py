"""A table ready to be written, with bold entries and note marks, and its writers: Markdown, LaTeX and HTML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape as escape_html
from itertools import groupby

DASH = "–"
GREEK = {
    "rho": "ρ",
    "tau": "τ",
    "alpha": "α",
    "beta": "β",
    "gamma": "γ",
    "theta": "θ",
    "pi": "π",
    "mu2": "μ₂",
}
SPECIAL = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"\,$\pm$\,", DASH: "--", "×": r"$\times$", "<": "$<$",
    ">": "$>$", "ρ": r"$\rho$", "τ": r"$\tau$", "α": r"$\alpha$", "β": r"$\beta$", "γ": r"$\gamma$", "θ": r"$\theta$",
    "π": r"$\pi$", "μ": r"$\mu$", "₂": r"$_2$", "₁": r"$_1$", "₃": r"$_3$",
}  # fmt: skip


@dataclass(frozen=True)
class TableEntry:
    """One piece of a line."""

    text: str
    bold: bool = False
    marks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Column:
    group: str
    entry: TableEntry


@dataclass(frozen=True)
class Line:
    group: str
    label: TableEntry  # empty on the second and third line of a row
    source: str  # configured, reproduced, published or difference
    entries: tuple[TableEntry, ...]


@dataclass(frozen=True)
class ReportTable:
    name: str
    title: str
    caption: str
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    notes: tuple[tuple[str, str], ...]  # mark, empty for the whole table; text


@dataclass
class Notes:
    """Gives every distinct note its letter, in the order of use."""

    general: list[str] = field(default_factory=list)
    marked: dict[str, str] = field(default_factory=dict)

    def add(self, text: str) -> None:
        if text not in self.general:
            self.general.append(text)

    def mark(self, texts: Iterable[str]) -> tuple[str, ...]:
        return tuple(
            self.marked.setdefault(text, letters(len(self.marked))) for text in dict.fromkeys(texts)
        )

    def as_list(self) -> tuple[tuple[str, str], ...]:
        return (
            *(("", text) for text in self.general),
            *((mark, text) for text, mark in self.marked.items()),
        )


def letters(index: int) -> str:
    """a to z, then aa, ab and so on."""
    head, tail = divmod(index, 26)
    return (letters(head - 1) if head else "") + chr(ord("a") + tail)


def with_greek_letters(text: str) -> str:
    """A printed heading with its Greek letters and indices."""
    text = re.sub(
        r"(?<![A-Za-z])(" + "|".join(GREEK) + r")(?![A-Za-z0-9])",
        lambda found: GREEK[found.group()],
        text,
    )
    return re.sub(r"\bT_([123])\b", lambda found: "T" + "₁₂₃"[int(found.group(1)) - 1], text)


def markdown(grid: ReportTable) -> str:
    titles = [
        "",
        "",
        *(
            " ".join(filter(None, (column.group, _markdown(column.entry))))
            for column in grid.columns
        ),
    ]
    rows = [titles, ["---", "---", *["---:"] * len(grid.columns)]]
    for line in grid.lines:
        group = f"{line.group}: " if line.group and line.label.text else ""
        rows.append([group + _markdown(line.label), line.source, *map(_markdown, line.entries)])
    body = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    notes = "\n".join(
        f"- <sup>{mark}</sup> {text}" if mark else f"- {text}" for mark, text in grid.notes
    )
    return f"# {grid.title}\n\n{grid.caption}\n\n{body}\n" + (f"\n{notes}\n" if notes else "")


def _markdown(entry: TableEntry) -> str:
    text = entry.text.replace("|", "\\|")
    text = f"**{text}**" if entry.bold else text
    return text + (f"<sup>{','.join(entry.marks)}</sup>" if entry.marks else "")


def latex(grid: ReportTable) -> str:
    """A fragment for \\input: no float, no caption. Needs booktabs and graphicx."""
    width = 2 + len(grid.columns)
    lines = [
        f"% {grid.title}. \\usepackage{{booktabs,graphicx}}; \\input this file inside a table or figure environment.",
        r"\begingroup\footnotesize\setlength{\tabcolsep}{4pt}\noindent",
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        rf"\begin{{tabular}}{{ll{'r' * len(grid.columns)}}}",
        r"\toprule",
        *_latex_header(grid.columns),
        r"\midrule",
    ]
    for index, (group, members) in enumerate(groupby(grid.lines, key=lambda line: line.group)):
        if index:
            lines.append(r"\midrule")
        if group:
            lines.append(rf"\multicolumn{{{width}}}{{l}}{{\emph{{{escape(group)}}}}} \\")
        lines += _latex_lines(list(members))
    lines += [r"\bottomrule", r"\end{tabular}}%", r"\par\smallskip\raggedright"]
    for mark, text in grid.notes:
        lines.append((rf"\textsuperscript{{{mark}}}\," if mark else "") + escape(text) + r"\par")
    return "\n".join([*lines, r"\endgroup", ""])


def latex_document(grid: ReportTable, fragment: str) -> str:
    """A page of its own around the fragment, on paper large enough for every table."""
    lines = [
        r"\documentclass{article}",
        r"\usepackage[T1]{fontenc}",
        r"\usepackage[a3paper,landscape,margin=12mm]{geometry}",
        r"\usepackage{booktabs,graphicx}",
        r"\pagestyle{empty}",
        r"\begin{document}",
        rf"\noindent\textbf{{{escape(grid.title)}.}} {escape(grid.caption)}\par\medskip",
        rf"\input{{{fragment}}}",
        r"\end{document}",
        "",
    ]
    return "\n".join(lines)


def escape(text: str) -> str:
    """Text for LaTeX; a sign before a digit is a minus or a plus, not a hyphen."""
    plain = "".join(SPECIAL.get(character, character) for character in text)
    return re.sub(r"(?<![\w.)}-])([+-])(?=\d)", r"$\1$", plain)


def _latex(entry: TableEntry) -> str:
    text = rf"\textbf{{{escape(entry.text)}}}" if entry.bold else escape(entry.text)
    return text + (rf"\textsuperscript{{{','.join(entry.marks)}}}" if entry.marks else "")


def _latex_header(columns: Sequence[Column]) -> list[str]:
    names = " & ".join(["", "", *(_latex(column.entry) for column in columns)]) + r" \\"
    if not any(column.group for column in columns):
        return [names]
    cells, rules, at = ["", ""], [], 3
    for group, members in groupby(columns, key=lambda column: column.group):
        span = len(list(members))
        cells.append(rf"\multicolumn{{{span}}}{{c}}{{{escape(group)}}}")
        if group:
            rules.append(rf"\cmidrule(lr){{{at}-{at + span - 1}}}")
        at += span
    return [" & ".join(cells) + r" \\", "".join(rules), names]


def _latex_lines(members: Sequence[Line]) -> list[str]:
    lines = []
    for index, line in enumerate(members):
        if index and line.label.text:
            lines.append(r"\addlinespace")
        lines.append(
            " & ".join([_latex(line.label), escape(line.source), *map(_latex, line.entries)])
            + r" \\"
        )
    return lines


def html(grid: ReportTable) -> str:
    """A table and its notes, without styles: classes say whose numbers a line has and where nothing ran."""
    lines = []
    for line in grid.lines:
        label = (
            f'<th scope="rowgroup" rowspan="{_height(grid)}">{_html(line.label)}</th>'
            if line.label.text
            else ""
        )
        start = f'<tr class="{escape_html(line.source)}{" first" if line.label.text else ""}">{label}<th scope="row">'
        cells = "".join(_html_cell(entry) for entry in line.entries)
        lines.append((line.group, f"{start}{escape_html(line.source)}</th>{cells}</tr>"))
    body = []
    for group, members in groupby(lines, key=lambda line: line[0]):
        width = 2 + len(grid.columns)
        title = f'<tr class="group"><th colspan="{width}" scope="colgroup">{escape_html(group)}</th></tr>'
        body.append(
            f"<tbody>{title if group else ''}{''.join(text for _, text in members)}</tbody>"
        )
    notes = [
        f"<li>{f'<sup>{mark}</sup> ' if mark else ''}{escape_html(text)}</li>"
        for mark, text in grid.notes
    ]
    head = "".join(f"<tr>{row}</tr>" for row in _html_header(grid.columns))
    caption = f"<caption>{escape_html(grid.caption)}</caption>"
    table = f'<table id="{escape_html(grid.name)}">{caption}<thead>{head}</thead>{"".join(body)}</table>'
    return f'<div class="scroll" tabindex="0">{table}</div>' + (
        f"<ul>{''.join(notes)}</ul>" if notes else ""
    )


def _height(grid: ReportTable) -> int:
    """Lines of a row: the kinds that are told apart."""
    return len(dict.fromkeys(line.source for line in grid.lines))


def _html(entry: TableEntry) -> str:
    text = f"<b>{escape_html(entry.text)}</b>" if entry.bold else escape_html(entry.text)
    return text + (f"<sup>{','.join(entry.marks)}</sup>" if entry.marks else "")


def _html_cell(entry: TableEntry) -> str:
    return ('<td class="none">' if entry.text == DASH else "<td>") + f"{_html(entry)}</td>"


def _html_header(columns: Sequence[Column]) -> list[str]:
    names = "".join(f'<th scope="col">{_html(column.entry)}</th>' for column in columns)
    if not any(column.group for column in columns):
        return [f'<td colspan="2"></td>{names}']
    groups = [
        (group, len(list(members)))
        for group, members in groupby(columns, key=lambda column: column.group)
    ]
    above = "".join(
        f'<th scope="colgroup" colspan="{span}">{escape_html(group)}</th>' for group, span in groups
    )
    return [f'<td colspan="2" rowspan="2"></td>{above}', names]
