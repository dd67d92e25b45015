"""The site as files: what stands on its pages, and that nothing in them is a name's doing or asks another host."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import numpy as np
import pytest

from obliq_eval import runs
from obliq_eval.leaderboard import paper, site, site_plots, site_queries, site_tables
from obliq_eval.leaderboard.entries import BENCH, MINI_BENCH, Board, Cost, Entry, Exposure, Figure
from obliq_eval.leaderboard.site_svg import Scale, inside, round_top
from obliq_eval.manifest import Data, Manifest, Model
from obliq_eval.metrics import Panel
from obliq_eval.records import Run
from obliq_eval.reference import open_task
from obliq_eval.show import UNKNOWN

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = ("<script>alert(1)</script>", "a | b", '"><img src=x onerror=alert(1)>', "{{ 7*7 }}", "</style><b>bold")
MEASURES = ("ndcg@10", "recall@10", "recall@100", "recall@1000")


def reported(label: str, value: str, **fields: object) -> Entry:
    """Return a reported row whose NDCG@10 is given as its source writes it; an empty text is unknown."""
    figures = {"gold": {"ndcg@10": Figure(float(value), len(value) - 2, "a paper", "Table 1")}} if value else {}
    given = {"system": label, "label": label, "task": "T", "figures": figures, "ran_by": "paper", **fields}
    return Entry(scored_by="reported", **given)  # type: ignore[arg-type] # fields by name


def measured(label: str, value: float, **fields: object) -> Entry:
    """Return a measured row with an interval .01 to each side and a recall that grows with k."""
    panel = Panel(("q",), {"ndcg@10": np.array([value])}, 100, (), (), 0, 0.25, 3)
    figures = {
        "ndcg@10": Figure(value, 4, label, "recomputed from the run", value - 0.01, value + 0.01),
        "recall@10": Figure(0.25, 4, label, "recomputed from the run"),
        "recall@100": Figure(0.5, 4, label, "recomputed from the run"),
    }
    given = {
        "system": label, "label": label, "task": "T", "figures": {"gold": figures}, "ran_by": "us", "depth": 100,
        "rank": (1, 2), "panels": {"gold": panel}, **fields,
    }  # fmt: skip
    return Entry(scored_by="recomputed", **given)  # type: ignore[arg-type] # fields by name


def cost(low: float, high: float) -> Cost:
    return Cost(low, high, None, "a machine", "everything", "a paper", "Table 8")


def board(*entries: Entry, name: str = BENCH, task: str = "OBLIQ-Math") -> Board:
    judgments = ("gold", "pooled") if name == BENCH else ("gold",)
    return Board(name, task, task, "About it.", 151, judgments, MEASURES, entries, "0123456789abcdef", ("A note.",))


ROWS = (
    reported("best", "0.25", cost=cost(1, 4), exposure=Exposure(True, False, None)),
    measured("second", 0.2, cost=cost(0.1, 0.1)),
    reported("dominated", "0.1", cost=cost(10, 10)),
    reported("unknown", ""),
    reported("ceiling", "0.9", oracle=True),
)


class Page(HTMLParser):
    """What a browser would make of a page: its elements, and the texts of its table rows."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        if tag in {"td", "th"} and self.rows:
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data

    def row(self, name: str) -> list[str]:
        """Return the first row of this name, without figure spaces and line ends."""
        return next([" ".join(c.split()) for c in row] for row in self.rows if row and row[0].strip() == name)


def made(*boards: Board) -> dict[str, str]:
    return site.pages(boards, paper.table_pages())


def test_there_is_a_page_for_each_task_and_table_and_an_index(tmp_path: Path) -> None:
    site.write([board(*ROWS), board(name=MINI_BENCH, task="OBLIQ-Mini-Math")], paper.table_pages(), tmp_path / "site")
    assert {path.name for path in (tmp_path / "site").iterdir()} == {
        "index.html", "OBLIQ-Math.html", "OBLIQ-Mini-Math.html", "table-5.html", "table-h1.html", "table-d1.html",
    }  # fmt: skip


def test_the_same_boards_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        site.write([board(*ROWS)], paper.table_pages(), tmp_path / name)
    first, second = ({p.name: p.read_bytes() for p in (tmp_path / name).iterdir()} for name in ("a", "b"))
    assert first == second


def test_every_link_of_a_page_leads_to_a_page_or_a_place_on_it() -> None:
    pages = made(board(*ROWS), board(name=MINI_BENCH, task="OBLIQ-Mini-Math"))
    for text in pages.values():
        page = Page(text)
        ids = {attrs["id"] for _, attrs in page.elements if "id" in attrs}
        for tag, attrs in page.elements:
            if tag == "a":
                target = attrs["href"] or ""
                assert target in pages or target.removeprefix("#") in ids, target


def test_a_row_holds_what_is_known_and_a_dash_for_the_rest() -> None:
    page = Page(made(board(*ROWS))["OBLIQ-Math.html"])
    # NDCG@10, interval, rank, Recall@10/100/1000; four pooled figures, judged@10; who, queries, depth; exposure
    dashes = [UNKNOWN] * 3
    assert page.row("second") == [
        "second", "0.2000", "0.1900 to 0.2100", "1 to 2", "0.2500", "0.5000", UNKNOWN,
        UNKNOWN, *dashes, UNKNOWN, "us", "recomputed", "all", "100", *dashes,
    ]  # fmt: skip
    assert page.row("best") == [
        "best", "0.25", UNKNOWN, UNKNOWN, *dashes, UNKNOWN, *dashes, UNKNOWN, "paper", "reported", "all", UNKNOWN,
        "yes", "no", UNKNOWN,
    ]  # fmt: skip


def test_the_share_of_judged_documents_stands_beside_the_widest_judgments() -> None:
    mini = board(measured("a", 0.2), name=MINI_BENCH, task="OBLIQ-Mini-Math")
    (row,) = site_tables.board_table(mini).rows
    columns = [column.name for column in site_tables.board_table(mini).columns]
    assert row.cells[columns.index("Judged@10") - 1].text == "0.25"
    assert [c.name for c in site_tables.board_table(board(*ROWS)).columns if c.group == "Pooled judgments"] == [
        "NDCG@10", "Recall@10", "Recall@100", "Recall@1000", "Judged@10",
    ]  # fmt: skip


def test_only_the_best_that_is_no_oracle_is_bold_and_oracles_are_marked() -> None:
    text = made(board(*ROWS))["OBLIQ-Math.html"]
    table = text[text.index("<tbody>") : text.index("</tbody>")]
    assert re.findall(r"<strong>(.*?)</strong>", table) == ["0.25\u2007\u2007"]
    assert re.findall(r"(\w+)(?:</a>)? <span class=\"tag\">oracle</span>", table) == ["ceiling"]


def test_decimal_points_stand_in_line() -> None:
    """Numbers are aligned to the right, so each ends in as many figure spaces as it has fewer decimals."""
    table = site_tables.board_table(board(*ROWS))
    assert [row.cells[0].text for row in table.rows] == [
        "0.25\u2007\u2007", "0.2000", "0.1\u2007\u2007\u2007", UNKNOWN, "0.9\u2007\u2007\u2007",
    ]  # fmt: skip
    assert [row.cells[0].value for row in table.rows] == [0.25, 0.2, 0.1, None, 0.9]


def test_official_and_mini_boards_share_no_table_and_nothing_is_averaged() -> None:
    mini = board(measured("tiny", 0.5), name=MINI_BENCH, task="OBLIQ-Mini-Math")
    page = Page(made(board(*ROWS), mini)["index.html"])
    heads = [row for row in page.rows if row and row[0].strip() == "System"]
    assert [[cell.strip() for cell in row[1:-2]] for row in heads] == [["OBLIQ-Math"], ["OBLIQ-Mini-Math"]]
    assert not any("mean" in cell.lower() or "average" in cell.lower() for row in heads for cell in row)


def test_dev_rows_are_not_in_the_overview() -> None:
    names = [row.name for row in site_tables.matrix([board(*ROWS, measured("part", 0.9, coverage="dev"))]).rows]
    assert names == ["best", "second", "dominated", "unknown", "ceiling"]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_are_shown_as_they_are_and_make_no_element(name: str) -> None:
    plain = Page(made(board(measured("x", 0.2, description="x", licence="x", cost=cost(1, 2))))["OBLIQ-Math.html"])
    text = made(board(measured(name, 0.2, description=name, licence=name, cost=replace(cost(1, 2), note=name))))
    for file in ("index.html", "OBLIQ-Math.html"):
        page = Page(text[file])
        assert page.row(" ".join(name.split()))
        assert not any(a.startswith("on") for _, attrs in page.elements for a in attrs)
    shown = Page(text["OBLIQ-Math.html"])
    assert [tag for tag, _ in shown.elements] == [tag for tag, _ in plain.elements]


def test_only_web_addresses_become_links() -> None:
    text = made(board(measured("x", 0.2, links=("javascript:alert(1)", "https://example.org/a?b=1&c='"))))
    page = Page(text["OBLIQ-Math.html"])
    away = [a["href"] for tag, a in page.elements if tag == "a" and "rel" in a]
    assert away == ["https://example.org/a?b=1&c='"]


def test_direction_and_control_characters_are_taken_out() -> None:
    assert site_tables.plain("a\u202eb\x00c\nd") == "a b c d"


def test_no_page_asks_for_anything() -> None:
    """A policy forbids it, and no element, style or script names anything to load."""
    pages = made(board(*ROWS), board(measured("a", 0.2), name=MINI_BENCH, task="OBLIQ-Mini-Math"))
    for text in pages.values():
        page = Page(text)
        policy = next(a["content"] for t, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
        assert policy is not None
        assert policy.startswith("default-src 'none'; style-src 'sha256-")
        assert "unsafe" not in policy
        assert not {tag for tag, _ in page.elements} & {"link", "img", "iframe", "object", "embed", "image", "use"}
        assert not any({"src", "srcset", "style", "xlink:href"} & attrs.keys() for _, attrs in page.elements)
        assert not re.search(r"url\(|@import|@font-face|fetch\(|XMLHttpRequest|sendBeacon|import\(", text)


def test_policy_names_the_very_style_and_script() -> None:
    """The hash is over the element's text, so a space that a template adds would switch both off."""
    text = made(board(*ROWS))["index.html"]
    for tag in ("style", "script"):
        inner = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        assert inner is not None
        assert site._source_expression(inner[1]) in html.unescape(text)


def test_intervals_are_drawn_where_they_are_known() -> None:
    """A scale from 0 to 1 over 218…542 px puts .19, .2, .21 at 279.6, 282.8, 286.0: 218 + 324 v."""
    drawn = site_plots.intervals(board(*ROWS))
    assert drawn is not None
    assert drawn.left_out == ("unknown",)
    assert drawn.wide.count('<g class="') == 4
    assert re.findall(r'<line class="interval" x1="([\d.]+)" y1="[\d.]+" x2="([\d.]+)"', drawn.wide) == [
        ("279.6", "286.0"), ("279.6", "279.6"), ("286.0", "286.0"),
    ]  # fmt: skip
    assert '<circle class="mark filled" cx="282.8"' in drawn.wide
    assert drawn.wide.count('<path class="mark hollow"') == 1


def test_pareto_front_leaves_out_what_is_slower_and_worse_and_names_what_is_not_shown() -> None:
    """Seconds .1 and 4 are the front; 10 s with .1 is dominated; two rows have no cost.

    The scale is .1 … 10 s over 44 … 588 px, so 4 s stands at 44 + 544 (log10(4) + 1) / 2 = 479.8. Vertically 0 … .3
    over 284 … 14 px: .2 at 104, .25 at 59.
    """
    drawn = site_plots.pareto(board(*ROWS))
    assert drawn is not None
    assert drawn.left_out == ("unknown", "ceiling")
    assert '<path class="frontier" d="M44.0 104.0H479.8V59.0H588"/>' in drawn.wide
    assert drawn.wide.count('class="interval"') == 1


def test_pareto_needs_a_cost() -> None:
    assert site_plots.pareto(board(reported("a", "0.1"))) is None


def test_recall_curves_name_the_systems_without_one() -> None:
    drawn = site_plots.recall(board(*ROWS))
    assert drawn is not None
    assert drawn.left_out == ("best", "dominated", "unknown", "ceiling")
    assert "<title>second: 0.250 at 10, 0.500 at 100</title>" in drawn.wide
    assert site_plots.recall(board(reported("a", "0.1"))) is None


def test_scales() -> None:
    assert Scale(0, 1, 100, 200)(0.25) == 125
    assert Scale(10, 1000, 0, 100, log=True)(100) == 50
    assert Scale(0, 0.25, 0, 1).ticks(6) == [0, 0.05, 0.1, 0.15, 0.2, 0.25]
    assert round_top([0.199]) == pytest.approx(0.25)
    assert round_top([0.0]) == 0.05
    assert round_top([0.99]) == 1


def test_names_are_moved_together_into_the_picture() -> None:
    assert inside([90, 105], 10, 100) == [85, 100]
    assert inside([0, 20], 10, 100) == [10, 30]
    assert inside([], 0, 1) == []


def test_boards_without_rows_say_so() -> None:
    text = made(board(name=MINI_BENCH, task="OBLIQ-Mini-Math"))
    assert "No system has been measured yet" in text["OBLIQ-Mini-Math.html"]
    assert "No system has been measured yet" in text["index.html"]
    assert "<table" not in text["OBLIQ-Mini-Math.html"]


def test_official_boards_have_no_page_of_queries(tmp_path: Path) -> None:
    """Their texts are not the package's to show, and a build must not need the network."""
    both = [measured(name, 0.2, folder=tmp_path) for name in ("a", "b")]
    assert site_queries.query_page(board(*both)) is None


def test_mini_boards_have_a_page_on_which_queries_are_read(tmp_path: Path) -> None:
    """BM25 is what the others are compared with, wherever it stands; a page that grows too large loses its lowest."""
    task = "OBLIQ-Mini-Congress"
    reference = open_task(task)
    query = reference.main.queries[0]
    gold = next(d for d, grade in reference.main.grades[query].items() if grade > 0)
    rows = []
    for name, value in (("a</script>", 0.4), ("bm25", 0.3), ("c", 0.2)):
        run = Run.of({query: {gold: value}}, 10)
        manifest = Manifest(task, Data(task, reference.revision, "mini"), Model(name), 10, 1)
        folder = runs.store(run, manifest).path
        rows.append(measured(name, value, folder=folder))
    page = site_queries.query_page(board(*rows, name=MINI_BENCH, task=task))
    assert page is not None
    assert (page.path, page.baseline, page.others, page.left_out) == (
        f"queries/{task}.html", "bm25", ("a</script>", "c"), (),
    )  # fmt: skip
    assert "a</script>" not in page.content
    text = made(board(*rows, name=MINI_BENCH, task=task))
    assert f'href="queries/{task}.html"' in text[f"{task}.html"]
    assert text[page.path] == page.content


def test_a_page_of_queries_that_grows_too_large_loses_its_lowest_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page is as long as 10 bytes for each system here: two fit 29 bytes, three do not, and one is no comparison."""
    monkeypatch.setattr(site_queries.reference, "open_task", lambda task: task)
    monkeypatch.setattr(site_queries, "_system", lambda entry, _: entry.label)
    monkeypatch.setattr(site_queries.comparison, "compare", lambda _, systems: systems)
    monkeypatch.setattr(site_queries.comparison_page, "render", lambda systems: "x" * 10 * len(systems))
    rows = [measured(name, value, folder=tmp_path) for name, value in (("a", 0.3), ("b", 0.2), ("c", 0.1))]
    monkeypatch.setattr(site_queries, "LARGEST", 29)
    page = site_queries.query_page(board(*rows, name=MINI_BENCH, task="OBLIQ-Mini-Math"))
    assert page is not None
    assert (page.baseline, page.others, page.left_out) == ("c", ("a",), ("b",))
    monkeypatch.setattr(site_queries, "LARGEST", 19)
    assert site_queries.query_page(board(*rows, name=MINI_BENCH, task="OBLIQ-Mini-Math")) is None
