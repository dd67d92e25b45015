"""One self-contained page on which a person reads where two systems differ: queries, documents, what was missed."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obliq_eval import show
from obliq_eval.comparison_tables import bounds, label, notes, views
from obliq_eval.home import whole_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from obliq_eval.comparison import Comparison
    from obliq_eval.records import Corpus, Ranking
    from obliq_eval.reference import System

TEMPLATES = Path(__file__).parent / "templates"
TOP = 10  # documents of each system that are shown at once
SHOWN = 50  # and how many can be
LONG, SHORT = 1_200, 300  # characters kept of a document that is judged or in a top 10, and of any other


def write(comparison: Comparison, path: Path) -> None:
    """Write the page whole or not at all.

    Raises:
        UserError: If the file cannot be written.
    """
    text = render(comparison)
    with whole_file(path) as target:
        target.write_text(text, encoding="utf-8")


def render(comparison: Comparison) -> str:
    """Return the page as HTML without any reference to another file or host.

    Everything that is not ours (names, ids, texts) is escaped by Jinja2 in the tables, and stands as JSON in a data
    block for the rest, from where the script puts it into the page as text. The content security policy allows the
    page's own script and style by their hashes, and nothing else.
    """
    style, script = (_part(name) for name in ("comparison.css", "comparison.js"))
    parts = [
        {"views": [_cells(view) for view in views(comparison, part)], "notes": notes(comparison, part)}
        for part in comparison.parts
    ]
    return str(
        _template().render(
            title=f"{' · '.join(system.name for system in comparison.systems)} on {comparison.reference.name}",
            comparison=comparison,
            measure=label(comparison.measure),
            parts=parts,
            bounds=bounds,
            data=_as_script_data(page_data(comparison)),
            style=style,
            script=script,
            style_hash=_csp_hash(style),
            script_hash=_csp_hash(script),
        )
    )


def page_data(comparison: Comparison) -> dict[str, Any]:
    """Return what the page's script reads.

    Returns:
        `systems`, `judgments`, and settings; `queries` with their text, values, ranked documents, relevant documents
        with their grades and ranks, and excluded documents; `documents` as `[id, text or None, length]`, to which the
        queries refer by position.
    """
    numbers: dict[str, int] = {}
    long: set[str] = set()
    data = comparison.reference.data
    queries = [
        _query(comparison, query, numbers, long) for query in comparison.parts[0].panels[comparison.baseline].queries
    ]
    texts = _texts(data.corpus, numbers, long) if data is not None else {}
    return {
        "measure": label(comparison.measure),
        "tie": comparison.tie,
        "pool": comparison.parts[0].contrasts[0].failures.pool_depth,
        "top": TOP,
        "shown": SHOWN,
        "long": SHORT,
        "texts": data is not None,
        "systems": [{"name": system.name, "depth": system.run.depth} for system in comparison.systems],
        "judgments": [part.judgments for part in comparison.parts],
        "classes": [_classes(comparison, number) for number in range(len(comparison.parts))],
        "queries": queries,
        "documents": [[document, *texts.get(document, (None, 0))] for document in numbers],
    }


def _query(comparison: Comparison, query: str, numbers: dict[str, int], long: set[str]) -> dict[str, Any]:
    """Return one query; documents that it shows are given numbers, and those that are to be long are noted."""
    reference = comparison.reference
    excluded = reference.exclusions.get(query, frozenset())
    lists = [_shown(system, query, excluded) for system in comparison.systems]
    grades = [part.get(query, {}) for part in (judgments.grades for judgments in reference.judgments.values())]
    relevant = list(dict.fromkeys(d for part in grades for d, grade in part.items() if grade > 0))
    long.update(relevant, excluded, *(documents[:TOP] for documents in lists))

    def number(document: str) -> int:
        return numbers.setdefault(document, len(numbers))

    ranks = [_ranks(system.run.rankings.get(query), relevant) for system in comparison.systems]
    return {
        "id": query,
        "text": None if reference.data is None else reference.data.queries.get(query),
        "values": [_values(comparison, part, query) for part in range(len(comparison.parts))],
        "lists": [[number(document) for document in documents] for documents in lists],
        "relevant": [[number(d), [part.get(d) for part in grades], [r.get(d) for r in ranks]] for d in relevant],
        "excluded": [number(document) for document in sorted(excluded)],
    }


def _shown(system: System, query: str, excluded: frozenset[str]) -> list[str]:
    """Return a system's first documents as they were delivered; excluded ones among them have no rank."""
    found: list[str] = []
    ranked = 0
    for document in system.delivered.rankings[query].documents if query in system.delivered.rankings else ():
        if ranked == SHOWN:
            break
        found.append(document)
        ranked += document not in excluded
    return found


def _ranks(ranking: Ranking | None, wanted: Iterable[str]) -> dict[str, int]:
    """Return the ranks, from 1, of the wanted documents that are in a ranking."""
    if ranking is None:
        return {}
    left = set(wanted)
    return {document: rank for rank, document in enumerate(ranking.documents, start=1) if document in left}


def _values(comparison: Comparison, part: int, query: str) -> list[float] | None:
    """Return each system's value for a query, or None where these judgments say nothing about it."""
    panels = comparison.parts[part].panels
    place = _places(panels[comparison.baseline].queries).get(query)
    return None if place is None else [float(panel.values[comparison.measure][place]) for panel in panels.values()]


@cache
def _places(queries: tuple[str, ...]) -> dict[str, int]:
    return {query: place for place, query in enumerate(queries)}


def _classes(comparison: Comparison, part: int) -> list[dict[str, str]]:
    """Return for each system but the baseline what became of each query."""
    names = ("helped", "hurt", "tied", "outside_pool", "in_pool")
    return [
        {query: name for name in names for query in getattr(contrast.failures, name)}
        for contrast in comparison.parts[part].contrasts
    ]


def _texts(corpus: Corpus, wanted: Mapping[str, int], long: set[str]) -> dict[str, tuple[str, int]]:
    """Return `(text, cut to what the page shows; length of the whole text)` of the wanted documents."""
    from obliq_eval.data.corpus import ids_of

    rows = [row for row, identifier in enumerate(ids_of(corpus.documents)) if identifier in wanted]
    found = {}
    for row in corpus.documents.select(rows):
        text = row["text"]
        found[row["id"]] = (text[: LONG if row["id"] in long else SHORT], len(text))
    return found


def _cells(view: Any) -> dict[str, Any]:
    return {
        "title": view.title,
        "columns": view.columns,
        "rows": [[show.cell(value) for value in row] for row in view.rows],
    }


def _as_script_data(value: Any) -> str:
    """Return JSON that cannot end the script element that it stands in, nor open a comment in it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


@cache
def _part(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


@cache
def _template() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(TEMPLATES)
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True).get_template(
        "comparison.html"
    )


def _csp_hash(text: str) -> str:
    """Return the source expression by which a content security policy allows an inline element (CSP 3, 2.3.1)."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
