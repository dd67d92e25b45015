"""Pages: what stands in the tables, and that no name can change them. A real Markdown parser reads them back."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

from markdown_it import MarkdownIt

from obliq_eval.leaderboard.boards import load_boards, load_tables
from obliq_eval.leaderboard.pages import MARK, pages, text
from obliq_eval.show import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
HOSTILE = [
    "a | b",
    "<script>alert('x')</script>",
    "`code` and ``more``",
    "[click](https://evil.example)",
    "![img](x)",
    "**bold** _it_ ~~gone~~ # no",
    "&lt;b&gt; &amp; \\| \\",
    "see https://evil.example or www.evil.example, @someone",
    "<!-- comment -->",
    "Ünïcödé 漢字 🙂",
]


def tables_of(page: str) -> list[list[list[str]]]:
    """Return every table of a page as rows of cells: the text that a reader sees."""
    rendered = PARSER.render(page)
    return [
        [
            [html.unescape(re.sub(r"<[^>]*>", "", cell)) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)]
            for row in re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)
        ]
        for table in re.findall(r"<table>(.*?)</table>", rendered, re.DOTALL)
    ]


def made(root: Path) -> dict[str, str]:
    return pages(load_boards(root), load_tables(root))


def test_there_is_a_page_for_each_task_and_table(tmp_path: Path) -> None:
    names = set(made(tmp_path))
    assert names == {
        "README.md", "OBLIQ-Twitter.md", "OBLIQ-WildChat.md", "OBLIQ-Math.md", "OBLIQ-Writing.md", "OBLIQ-Congress.md",
        "OBLIQ-Mini-Writing.md", "OBLIQ-Mini-Math.md", "OBLIQ-Mini-Congress.md", "table-5.md", "table-h1.md",
        "table-d1.md",
    }  # fmt: skip


def test_hostile_names_are_shown_as_they_are_and_change_nothing(submit: Callable[..., Path]) -> None:
    for i, name in enumerate(HOSTILE):
        root = submit(f"x{i}", [0.5, 0.25], label=name, description=f"{name}\n{name}", licence=name)
    shown = made(root)
    for page in ("README.md", "OBLIQ-Math.md"):
        rendered = PARSER.render(shown[page])
        assert not re.search(r"<(script|img|em|s|del)\b|href=\"[^\"]*evil", rendered)
        for table in tables_of(shown[page]):
            assert {len(row) for row in table} == {len(table[0])}
    first, systems = tables_of(shown["OBLIQ-Math.md"])[:2]
    assert {row[0] for row in first} >= set(HOSTILE)
    assert {tuple(row[:3]) for row in systems} >= {(name, f"{name} {name}", name) for name in HOSTILE}


def test_nothing_that_a_page_linkifies_by_itself_is_left(submit: Callable[..., Path]) -> None:
    """GitHub turns bare addresses and mentions into links; none may stand in a page as text from a submission."""
    page = made(submit("x1", [0.5, 0.25], description="http://evil.example www.evil.example @someone"))["OBLIQ-Math.md"]
    assert "http://evil" not in page
    assert "www.evil" not in page
    assert "@someone" not in page


def test_control_characters_do_not_reach_a_page() -> None:
    assert text("a\x00b\u202ec\r\nd\te") == "a b c d e"


def test_links_are_links(submit: Callable[..., Path]) -> None:
    page = made(submit("x1", [0.5, 0.25], links=("https://a.example/b_c?d=e&f=%20g",)))["OBLIQ-Math.md"]
    address = "https://a.example/b_c?d=e&amp;f=%20g"
    assert f'<a href="{address}">{address}</a>' in PARSER.render(page)


def test_the_main_table_says_who_ran_who_scored_and_what_was_seen(submit: Callable[..., Path]) -> None:
    from obliq_eval.leaderboard.entries import Exposure

    root = submit("x1", [0.5, 0.25] * 20, judgments=("gold", "pooled"), depth=100, exposure=Exposure(False, True, None))
    table = tables_of(made(root)["OBLIQ-Math.md"])[0]
    assert table[0] == [
        "System", "NDCG@10", "95 % interval", "Rank", "NDCG@50", "Recall@10", "Recall@50", "Recall@100", "Recall@1000",
        "pooled NDCG@10", "pooled NDCG@50", "pooled Recall@10", "pooled Recall@50", "pooled Recall@100",
        "pooled Recall@1000", "judged@10", "Queries", "Depth", "Ran by", "Scored by", "Exposure",
    ]  # fmt: skip
    mine = next(row for row in table if row[0] == "x1")
    assert (mine[1], mine[3], mine[8], mine[14]) == ("0.3750", "1", UNKNOWN, UNKNOWN)
    assert re.fullmatch(r"0\.3\d{3} to 0\.4\d{3}", mine[2])
    assert mine[15:] == ["0.25", "all", "100", "submitter", "recomputed", f"no / yes / {UNKNOWN}"]
    full = next(row for row in table if row[0] == "OBLIQ-IR (full)")
    assert full[1:5] == ["0.171", UNKNOWN, UNKNOWN, UNKNOWN]
    assert full[9] == "0.215"
    assert full[15:] == [UNKNOWN, "all", UNKNOWN, "paper", "reported", "yes / yes / yes"]


def test_the_best_attainable_system_is_bold(submit: Callable[..., Path]) -> None:
    def bold(root: Path, page: str) -> set[str]:
        return set(re.findall(r"^\| ([^|]*) \|.*\*\*\d", made(root)[page], re.MULTILINE))

    assert bold(submit("x1", [0.1, 0.1]), "OBLIQ-Math.md") == {"OBLIQ-IR (full)"}
    assert bold(submit("x2", [0.2, 0.2]), "OBLIQ-Math.md") == {"x2"}
    assert bold(submit("x3", [0.9, 0.9], oracle=True), "OBLIQ-Math.md") == {"x2"}


def test_tasks_without_pooled_judgments_have_no_pooled_columns(tmp_path: Path) -> None:
    header = tables_of(made(tmp_path)["OBLIQ-Writing.md"])[0][0]
    assert not any("pooled" in column for column in header)


def test_no_page_has_a_mean_column_and_mini_tasks_stand_apart(submit: Callable[..., Path]) -> None:
    submit("x1", [0.5, 0.25])
    root = submit("x1", [0.5, 0.25], task="OBLIQ-Mini-Math", kind="mini")
    shown = made(root)
    for page in shown.values():
        for table in tables_of(page):
            assert not any(re.search(r"mean|average|avg|overall", column, re.IGNORECASE) for column in table[0])
    official, mini = tables_of(shown["README.md"])
    assert not any("Mini" in column for column in official[0])
    assert official[0][3:] == ["OBLIQ-Twitter", "OBLIQ-WildChat", "OBLIQ-Math", "OBLIQ-Writing", "OBLIQ-Congress"]
    assert mini[0][3:] == ["OBLIQ-Mini-Writing", "OBLIQ-Mini-Math", "OBLIQ-Mini-Congress"]
    assert mini[1] == ["x1", "submitter", "recomputed", UNKNOWN, "0.3750", UNKNOWN]
    assert ["x1", "submitter", "recomputed", UNKNOWN, UNKNOWN, "0.3750", UNKNOWN, UNKNOWN] in official


def test_a_part_of_the_queries_does_not_enter_the_overview(submit: Callable[..., Path]) -> None:
    root = submit("on-dev", [0.5, 0.25], coverage="dev")
    shown = made(root)
    assert "on-dev" not in shown["README.md"]
    assert next(row for row in tables_of(shown["OBLIQ-Math.md"])[0] if row[0] == "on-dev")[16] == "dev"


def test_the_same_submissions_give_the_same_bytes(submit: Callable[..., Path]) -> None:
    submit("x1", [0.5, 0.25] * 20)
    root = submit("x2", [0.5, 0.0] * 20)
    first = made(root)
    assert first == made(root)
    assert all(page.startswith(MARK) and page.endswith("\n") for page in first.values())
    assert "2026-01-02" not in "".join(first.values())  # the date of the run above; no page carries a date
