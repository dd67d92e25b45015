"""Tables as Markdown and as LaTeX; every cell is escaped, since names and document ids are not ours."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from obliq_eval.show import UNKNOWN, cell

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_LATEX = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}",
    UNKNOWN: "--", **{character: f"\\{character}" for character in "&%$#_{}"},
}  # fmt: skip
_MARKDOWN = re.compile(r"[\\`*_{}\[\]#|~$]")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;", "://": "&#58;//", "www.": "www&#46;"}
"""HTML, and what GitHub turns into mentions and links by itself."""


def escape_markdown(text: str) -> str:
    """Return text that Markdown shows as it is, on one line: no markup, HTML, link or end of a table cell."""
    text = _MARKDOWN.sub(r"\\\g<0>", " ".join(text.split()))
    for raw, entity in _ENTITIES.items():
        text = text.replace(raw, entity)
    return text


def escape_latex(text: str) -> str:
    """Return text that LaTeX sets as it is, on one line."""
    return "".join(_LATEX.get(character, character) for character in " ".join(text.split()))


def markdown(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> str:
    """Return a Markdown table (GitHub's), numbers aligned to the right, with a title above it if there is one."""
    rows = [list(row) for row in rows]
    lines = [
        _line(map(escape_markdown, columns)),
        _line("---:" if right else "---" for right in _numeric(len(columns), rows)),
        *(_line(escape_markdown(cell(value)) for value in row) for row in rows),
    ]
    heading = f"**{escape_markdown(title)}**\n\n" if title else ""
    return heading + "\n".join(lines)


def latex(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> str:
    """Return a LaTeX table with the rules of the package booktabs, numbers aligned to the right."""
    rows = [list(row) for row in rows]
    body = [" & ".join(escape_latex(cell(value)) for value in row) + r" \\" for row in rows]
    lines = [
        r"% needs \usepackage{booktabs} and \usepackage[T1]{fontenc}",
        r"\begin{table}",
        r"\centering",
        *([rf"\caption{{{escape_latex(title)}}}"] if title else []),
        rf"\begin{{tabular}}{{{''.join('r' if right else 'l' for right in _numeric(len(columns), rows))}}}",
        r"\toprule",
        " & ".join(map(escape_latex, columns)) + r" \\",
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _numeric(width: int, rows: Sequence[Sequence[object]]) -> list[bool]:
    """Return for each column whether everything known in it is a number."""
    known = [[row[i] for row in rows if row[i] is not None] for i in range(width)]
    return [bool(c) and all(isinstance(v, int | float) and not isinstance(v, bool) for v in c) for c in known]
