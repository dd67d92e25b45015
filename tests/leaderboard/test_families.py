"""Families on the boards: files as the trainer writes them, the pages made of them, and the check of every number."""

from __future__ import annotations

import json
import re
import shutil
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from typer.testing import CliRunner

from obliq_eval import cli, significance
from obliq_eval.analyses.degeneracy import Degeneracy
from obliq_eval.errors import UserError
from obliq_eval.leaderboard import families, publish
from obliq_eval.leaderboard.boards import load_tables
from obliq_eval.leaderboard.submissions import load_submissions
from obliq_eval.reference import open_task
from obliq_eval.show import UNKNOWN
from obliq_train import ablation, ablation_tables
from tests.leaderboard.test_pages import PARSER, tables_of
from tests.leaderboard.test_site import Page

if TYPE_CHECKING:
    from collections.abc import Callable

TASKS = ("OBLIQ-Mini-Congress", "OBLIQ-Mini-Math")
TASK = "OBLIQ-Mini-Writing"


def row(name: str, seeds: list[list[float]], test: Any = None, p: float | None = None) -> ablation_tables.Row:
    """A row of two seeds; in the first a document comes first for every query, in the second each has its own."""
    values = np.array(seeds)
    n = values.shape[1]
    first = (Degeneracy(n, n, (("d", n),)), Degeneracy(n, n, tuple((f"d{i}", 1) for i in range(n))))
    means = tuple(float(one.mean()) for one in values)
    return ablation_tables.Row(name, ("a", "b"), values.mean(axis=0), means, 0.5, first, test, p)


@cache
def table(task: str) -> ablation_tables.Table:
    """The control has .5 for each query, the member .2 and .3 in its seeds; BM25 has 1 for every other query."""
    against = open_task(task, "held-out")
    ids = against.main.queries
    control, member = [[0.5] * len(ids)] * 2, [[0.2] * len(ids), [0.3] * len(ids)]
    bm25 = [[float(i % 2 == 0) for i in range(len(ids))]] * 2
    tests = [significance.paired_bootstrap(np.mean(one, axis=0), control[0]) for one in (member, bm25)]
    adjusted = significance.holm([test.p for test in tests])
    rows = (
        row("obliq-ir-mini", control),
        row("random-graph", member, tests[0], adjusted[0]),
        row("k3", control),
        row("again", member, tests[0], adjusted[0]),
        row("bm25", bm25, tests[1], adjusted[1]),
    )
    return ablation_tables.Table(task, against.revision, "gold", "held-out", ids, rows)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A leaderboard with the file of one family, as the trainer writes it."""
    found = ablation.Ablation(
        "teacher-graph", "mini", "obliq-ir-mini", (0, 1), tuple(map(table, TASKS)),
        {"luar": "<b>no</b> weights | here"}, {"k3": "obliq-ir-mini", "again": "random-graph"},
        {"k3": ("some/folder",)},
    )  # fmt: skip
    folder = tmp_path / "boards" / families.FOLDER
    folder.mkdir(parents=True)
    (folder / "teacher-graph.json").write_text(json.dumps(found.to_dict(), indent=2), "utf-8")
    return tmp_path / "boards"


def edit(root: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = root / families.FOLDER / "teacher-graph.json"
    content = json.loads(path.read_text("utf-8"))
    change(content)
    path.write_text(json.dumps(content), "utf-8")


def test_a_family_has_a_page_with_a_table_for_each_task(root: Path) -> None:
    """Each query differs by -.25, so the interval is that point; p is at least 2 / 10,001, twice that after Holm."""
    written = publish.build(root)
    assert {"mini-teacher-graph.md", "site/mini-teacher-graph.html"} <= set(written)
    page = (root / "mini-teacher-graph.md").read_text("utf-8")
    n = len(open_task(TASKS[0], "held-out").main.queries)
    assert "# teacher-graph on OBLIQ-Mini: " in page
    assert "not comparable with OBLIQ-Bench" in page
    assert (
        f"Measured here: held-out queries (n = {n}), gold judgments; Δ: NDCG@10 less that of obliq-ir-mini."
        in PARSER.render(page)
    )
    assert "As reported" not in page
    assert re.findall(r"<h2>(.*?)</h2>", PARSER.render(page)) == list(TASKS)
    congress, math = tables_of(page)
    assert congress[0] == list(families.COLUMNS) == math[0]
    spread = f"{(1 + n) / 2:.1f}".removesuffix(".0")
    assert congress[1] == [
        "obliq-ir-mini", "0.5000", "0.5000 to 0.5000", UNKNOWN, UNKNOWN, UNKNOWN, "0.5000", spread, "1.00",
    ]  # fmt: skip
    assert congress[2] == [
        "random-graph", "0.2500", "0.2000 to 0.3000", "-0.2500", "[-0.2500, -0.2500]", "0.0004", "0.5000", spread,
        "1.00",
    ]  # fmt: skip
    assert [line[0] for line in congress[3:]] == ["k3", "again", "bm25"]
    assert "&lt;b&gt;no&lt;/b&gt; weights | here" in PARSER.render(page)
    assert "luar was not run" in page
    assert "k3 has the recipe of obliq-ir-mini, which was trained once" in page


def test_the_site_shows_the_same_and_lists_it_apart_from_the_paper(root: Path) -> None:
    publish.build(root)
    html = (root / "site" / "mini-teacher-graph.html").read_text("utf-8")
    shown = Page(html)
    assert shown.row("random-graph")[3:6] == ["-0.2500", "[-0.2500, -0.2500]", "0.0004"]
    assert "Measured here: held-out queries" in html
    assert "not comparable with OBLIQ-Bench" in html
    assert 'data-value="0.2"' in html  # seeds are sorted by the lowest
    start = (root / "site" / "index.html").read_text("utf-8")
    official, mini = (start.index(f">{heading}</h2>") for heading in ("Tables of the paper", families.GROUP))
    assert official < start.index("table-d1.html", official) < mini < start.index("mini-teacher-graph.html", mini)
    readme = (root / "README.md").read_text("utf-8")
    assert readme.index("(table-d1.md)") < readme.index("## Families of recipes on") < readme.index("(mini-teacher-")


def test_check_names_the_pages_of_a_family_that_are_stale(root: Path) -> None:
    publish.build(root)
    assert publish.stale(root) == {}
    edit(root, lambda family: family["notes"].append("One more."))
    assert publish.stale(root) == dict.fromkeys(
        ("mini-teacher-graph.md", "site/mini-teacher-graph.html"), "out of date"
    )
    (root / families.FOLDER / "teacher-graph.json").unlink()
    found = publish.stale(root)
    assert {name for name, what in found.items() if what == "made no more"} == {
        "mini-teacher-graph.md", "site/mini-teacher-graph.html",
    }  # fmt: skip


def test_every_number_of_a_family_follows_from_its_values(root: Path) -> None:
    found = list(families.verify(root))
    assert len(found) == 2 * 5
    assert all(row.good for row in found)
    assert max(row.difference or 0 for row in found) < 1e-15
    assert found[1].system == "teacher-graph: random-graph"
    result = CliRunner().invoke(cli.app, ["leaderboard", "verify", "--root", str(root), "--json"])
    assert result.exit_code == 0
    assert len(json.loads(result.stdout)) == 10


def first(family: dict[str, Any], number: int = 1) -> dict[str, Any]:
    found: dict[str, Any] = family["tasks"][0]["rows"][number]
    return found


TAMPERED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "NDCG@10": lambda family: first(family).update({"ndcg@10": 0.26}),
    "by seed": lambda family: first(family).update({"by seed": [0.2, 0.31]}),
    "difference": lambda family: first(family)["difference"].update(difference=-0.2),
    "low": lambda family: first(family)["difference"].update(low=-0.3),
    "high": lambda family: first(family)["difference"].update(high=-0.2),
    "p": lambda family: first(family)["difference"].update(p=0.0),
    "resamples": lambda family: first(family)["difference"].update(resamples=100),
    "adjusted_p": lambda family: first(family)["difference"].update(adjusted_p=0.0002),
    "NDCG@10, by seed, difference": lambda family: first(family)["by query"].__setitem__(0, 1.0),
    "the values of obliq-ir-mini, whose recipe it has": lambda family: first(family, 2)["by query"].__setitem__(0, 0.6),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_a_number_that_does_not_follow_is_named(root: Path, what: str) -> None:
    edit(root, TAMPERED[what])
    wrong = [row for row in families.verify(root) if not row.good]
    assert wrong[0].task == TASKS[0]
    assert what in wrong[0].problem
    assert wrong[0].problem.endswith(
        "not as recomputed; make it again with `obliq train teacher-graph --ablate --data mini`"
    )
    result = CliRunner().invoke(cli.app, ["leaderboard", "verify", "--root", str(root)], env={"COLUMNS": "400"})
    assert result.exit_code == 1
    assert what in result.stdout


def test_a_difference_that_is_missing_is_named(root: Path) -> None:
    edit(root, lambda family: first(family).update(difference=None))
    assert [row.problem.partition(":")[0] for row in families.verify(root) if not row.good] == ["difference"]


def test_values_are_those_of_the_same_run_on_a_board(tmp_path: Path) -> None:
    """A row that names a run which stands on a board has its values; a run that stands on none is not compared."""
    boards, root = Path(__file__).parents[2] / "leaderboards", tmp_path / "boards"
    for part in ("mini/bm25", "mini/minilm", "mini/families"):
        shutil.copytree(boards / part, root / part)
    file = root / families.FOLDER / "seeds.json"
    found = json.loads(file.read_text("utf-8"))
    rows = {row["member"]: row for row in found["tasks"][0]["rows"]}
    ids = {one.about.system: one.manifest.run_id for one in load_submissions(root) if one.manifest.task == TASK}
    assert rows["bm25"]["runs"] == [ids["bm25"]], "else nothing would be compared here"
    assert all(row.good for row in families.verify(root))
    rows["bm25"]["runs"] = [ids["minilm"]]
    file.write_text(json.dumps(found), "utf-8")
    (wrong,) = [row for row in families.verify(root) if not row.good]
    assert wrong.system == "seeds: bm25"
    assert "the values of its run on the board" in wrong.problem


def test_values_of_other_queries_are_named(root: Path) -> None:
    edit(root, lambda family: family["tasks"][1].update({"queries": "test"}))
    wrong = [row for row in families.verify(root) if not row.good]
    assert [(row.system, row.task) for row in wrong] == [("teacher-graph", TASKS[1])]
    assert "its query ids are not those of the test queries" in wrong[0].problem


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda family: family.update(family="dose"), "it is about the family 'dose'"),
        (lambda family: family.update(data=None), "is damaged .data: "),
        (lambda family: family.update(tasks=[]), "is damaged .tasks: "),
        (lambda family: first(family).pop("by query"), "is damaged .*by query"),
        (lambda family: first(family).update({"ndcg@10": "0.25"}), "is damaged .*ndcg@10"),
        (lambda family: first(family).update({"ndcg@10": float("nan")}), "is damaged .*ndcg@10"),
        (lambda family: family["tasks"][0].update(task="OBLIQ-Math"), "OBLIQ-Math is not one of OBLIQ-Mini-Writing"),
        (lambda family: family["tasks"][0].update(data_revision="0"), "on revision 0, the board is about revision"),
        (lambda family: family["tasks"][0].update(n=3), "not one value of each row for each of two"),
        (lambda family: family["tasks"][0]["query ids"].pop(), "not one value of each row for each of two"),
        (lambda family: first(family).update(member="k3"), "are not the control obliq-ir-mini and others"),
        (lambda family: family.update(control="k3"), "are not the control k3 and others, each once"),
    ],
    ids=range(12),
)
def test_a_file_that_cannot_be_shown_is_named(
    root: Path, change: Callable[[dict[str, Any]], Any], message: str
) -> None:
    edit(root, change)
    with pytest.raises(UserError, match=rf"(?s)teacher-graph\.json.*{message}"):
        load_tables(root)
    with pytest.raises(UserError):
        publish.build(root)
    assert not (root / "README.md").exists()


def test_a_file_that_is_no_json_is_named(root: Path) -> None:
    path = root / families.FOLDER / "teacher-graph.json"
    for content in (b"{", b"\xff", b"[" * 100_000):
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"teacher-graph\.json is damaged"):
            load_tables(root)
