"""The leaderboards as a static site: pages that work from the file system and ask no other host for anything."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from obliq_eval.leaderboard import site_plots, site_tables
from obliq_eval.leaderboard.entries import BENCH, MINI_BENCH, Board, by_group
from obliq_eval.leaderboard.pages import BENCHMARKS, LEGEND
from obliq_eval.leaderboard.site_queries import QueryPage, query_page

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from obliq_eval.leaderboard.entries import Entry, TablePage

TEMPLATES = Path(__file__).parent / "templates"


def write(boards: Sequence[Board], tables: Sequence[TablePage], folder: Path) -> None:
    """Write every page of the site below a folder; the same boards and tables give the same bytes.

    Args:
        boards: The boards, the official ones first; official and mini boards never share a table.
        tables: The pages of tables, in their order.
        folder: An existing folder, or one to be made.

    Raises:
        UserError: If a measured run of a mini board cannot be read.
    """
    for name, content in pages(boards, tables).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8", newline="\n")


def pages(boards: Sequence[Board], tables: Sequence[TablePage]) -> dict[str, str]:
    """Return the HTML of every page by its path below the site's folder."""
    queries = {board.task: page for board in boards if (page := query_page(board)) is not None}
    common = {"groups": _groups(boards), "tables": by_group(tables), "legend": _legend()}
    made = {"index.html": _page("index.html", here="index", sections=_sections(boards), **common)}
    for board in boards:
        made[f"{board.task}.html"] = _page("task.html", here=board.task, **_task(board, queries), **common)
    for one in tables:
        shown = [(table, site_tables.text_table(table)) for table in one.tables]
        made[f"{one.slug}.html"] = _page("table.html", here=one.slug, page=one, shown=shown, **common)
    return made | {page.path: page.content for page in queries.values()}


def _task(board: Board, queries: Mapping[str, QueryPage]) -> dict[str, Any]:
    measured = sum(entry.scored_by == "recomputed" for entry in board.entries)
    return {
        "board": board,
        "shown": site_tables.board_table(board),
        "measured": measured,
        "reported": len(board.entries) - measured,
        "intervals": site_plots.intervals(board),
        "pareto": site_plots.pareto(board),
        "recall": site_plots.recall(board),
        "sources": site_tables.sources(board),
        "costs": site_tables.costs(board),
        "queries": queries.get(board.task),
        "unaddressed": [(number, entry, _links(entry)) for number, entry in enumerate(board.entries, start=1)],
    }


def _links(entry: Entry) -> list[str]:
    """Return the addresses that may become links; nothing but http and https does."""
    return [link for link in entry.links if re.match(r"https?://", link)]


def _groups(boards: Sequence[Board]) -> list[tuple[str, list[Board]]]:
    """Return the boards under their benchmarks, the official one first."""
    names = sorted({board.name for board in boards}, key=lambda name: ((BENCH, MINI_BENCH, name).index(name), name))
    return [(name, [board for board in boards if board.name == name]) for name in names]


def _sections(boards: Sequence[Board]) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "about": BENCHMARKS.get(name, ""),
            "rows": [(board, site_plots.strip(board)) for board in part],
            "matrix": site_tables.matrix(part),
        }
        for name, part in _groups(boards)
    ]


def _legend() -> list[tuple[str, str]]:
    """Return the terms that tables use with their explanations, from the text that the Markdown pages give."""
    found = re.findall(r"\*\*`?(.+?)`?\*\*:?\s*(.*?)(?=\s*\*\*|$)", " ".join(LEGEND))
    return [(term, explanation[:1].upper() + explanation[1:]) for term, explanation in found]


def _page(template: str, **values: Any) -> str:
    text = str(_environment().get_template(template).render(**values))
    return text if text.endswith("\n") else text + "\n"


@cache
def _environment() -> Any:
    """Return the templates' environment: everything is escaped, and style and script are allowed by their hashes.

    They stand in each page, since browsers do not agree on what a policy's `'self'` means for files.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style, script = ((TEMPLATES / name).read_text(encoding="utf-8") for name in ("site.css", "site.js"))
    environment.globals |= {
        "style": Markup(style),  # noqa: S704 -- a file of this package
        "script": Markup(script),  # noqa: S704 -- a file of this package
        "style_hash": _source_expression(style),
        "script_hash": _source_expression(script),
    }
    environment.filters["plain"] = site_tables.plain
    return environment


def _source_expression(text: str) -> str:
    """Return what allows an inline element in a content security policy (CSP 3, section 2.3.1)."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
