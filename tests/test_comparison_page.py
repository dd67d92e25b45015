"""The page of a comparison: what it embeds, and what a person can do with it in a real browser."""

from __future__ import annotations

import json
import re
import shutil
from html import unescape
from typing import TYPE_CHECKING, Any

import pytest

from obliq_eval import comparison_page, reference, runs
from obliq_eval.comparison import Comparison, compare
from obliq_eval.records import Run
from obliq_eval.show import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CHROMIUM = shutil.which("chromium-headless-shell")
HOSTILE = "</script><script>window.broken = 1</script><img src=x onerror='window.broken = 1'> | **bold** <!-- {{ 7*7 }}"
QUERIES = {
    "q helped": f"asks for a {HOSTILE}",
    "q/hurt": "asks for another thing",
    "q'tied": "the same in both",
    "q-outside": "found by neither",
    "q-pool": "found too far down",
}
CORPUS = {f"d{i}": f"text number {i}" for i in range(30)} | {
    "evil<b>": HOSTILE,
    "long": "word " * 1_000,
    "far": "z" * 400,
}
GOLD = {
    "q helped": {"evil<b>": 1},
    "q/hurt": {"d1": 1},
    "q'tied": {"d2": 1},
    "q-outside": {"d29": 1},
    "q-pool": {"d28": 1},
}
POOLED = {**GOLD, "q/hurt": {"d1": 1, "d3": 1}}
TWELVE = [f"d{i}" for i in range(10, 22)]
BASE = {
    "q helped": ["d5", "long", *TWELVE, "evil<b>"], "q/hurt": ["d1"], "q'tied": ["d2"], "q-outside": ["d3"],
    "q-pool": ["d4", "far"],
}  # fmt: skip
OTHER = {
    "q helped": ["d9", "evil<b>", "d5"], "q/hurt": ["d3", "d1"], "q'tied": ["d2"], "q-outside": [],
    "q-pool": [*TWELVE, "d28"],
}  # fmt: skip


@pytest.fixture
def made(write_task: Callable[..., Path], tmp_path: Path) -> Comparison:
    folder = write_task(CORPUS, QUERIES, GOLD, POOLED, {"q helped": ["d9"]}, name="toy")
    against = reference.open_task(str(folder))
    systems = []
    for name, answers in (("base", BASE), ("<i>other</i>", OTHER)):
        path = tmp_path / f"{len(systems)}.json"
        path.write_text(json.dumps(Run.from_lists(answers).to_dict()), "utf-8")
        systems.append(replace_name(reference.fit(runs.load(str(path)), against), name))
    return compare(against, systems)


def replace_name(system: reference.System, name: str) -> reference.System:
    return reference.System(name, system.run, system.delivered, system.run_id, None, system.warnings)


def embedded(html: str) -> Any:
    return json.loads(_data(html))


def _data(html: str) -> str:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_data_says_what_each_system_returned_and_missed(made: Comparison) -> None:
    data = embedded(comparison_page.render(made))
    queries = {query["id"]: query for query in data["queries"]}
    ids = [document[0] for document in data["documents"]]
    helped = queries["q helped"]
    assert helped["text"] == QUERIES["q helped"]
    assert [ids[i] for i in helped["lists"][1]] == ["d9", "evil<b>", "d5"]
    assert [ids[i] for i in helped["excluded"]] == ["d9"]
    assert helped["values"][0][1] == 1.0  # first, once the excluded document is dropped
    ((gold, grades, ranks),) = helped["relevant"]
    assert (ids[gold], grades, ranks) == ("evil<b>", [1, 1], [15, 1])
    assert data["classes"][0][0] == {
        "q helped": "helped", "q/hurt": "hurt", "q'tied": "tied", "q-outside": "outside_pool", "q-pool": "in_pool",
    }  # fmt: skip


def test_documents_are_embedded_once_cut_and_only_if_they_are_shown(made: Comparison) -> None:
    documents = {one[0]: one[1:] for one in embedded(comparison_page.render(made))["documents"]}
    assert len(documents["long"][0]) == comparison_page.LONG
    assert documents["long"][1] == 5_000
    assert documents["evil<b>"] == [HOSTILE, len(HOSTILE)]
    assert "d25" not in documents


def test_the_page_refers_to_nothing_outside_and_holds_no_markup_of_others(made: Comparison) -> None:
    html = comparison_page.render(made)
    assert re.findall(
        r"""\b(?:src|href|action)\s*=\s*["']?[^"'\s>]*|url\(|@import""", html.replace(_data(html), "")
    ) == ['href="#detail']
    assert "<i>other" not in html
    assert html.count("<script") == 2
    assert html.count("</script>") == 2
    assert re.search(r"default-src 'none'; style-src 'sha256-[^']+'; script-src 'sha256-[^']+'", unescape(html))


def test_without_texts_the_page_shows_ids(tmp_path: Path) -> None:
    qrels = tmp_path / "qrels.tsv"
    qrels.write_text("q1\ta\t1\nq2\tb\t1\n", "utf-8")
    systems = []
    for name, score in (("x", 1.0), ("y", 3.0)):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({"q1": {"a": score, "c": 2.0}, "q2": {"b": 1.0}}), "utf-8")
        systems.append(reference.fit(runs.load(str(path)), reference.open_qrels(qrels)))
    data = embedded(comparison_page.render(compare(reference.open_qrels(qrels), systems)))
    assert not data["texts"]
    assert data["documents"][0] == ["c", None, 0]
    assert str(tmp_path) not in comparison_page.render(compare(reference.open_qrels(qrels), systems))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no browser: install Debian's package chromium-headless-shell")
    api = pytest.importorskip("playwright.sync_api", reason="no driver for the browser: pip install playwright")
    with api.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def visit(browser: Any, made: Comparison, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Return a function that opens the page; any error, message or request of the page fails the test."""
    path = tmp_path / "page.html"
    comparison_page.write(made, path)
    contexts, faults = [], []

    def go(width: int = 1200, height: int = 800, scheme: str = "light", hash_: str = "") -> Any:
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda message: faults.append(message.text))
        page.on("request", lambda request: faults.append(request.url) if not request.url.startswith("file:") else None)
        page.goto(path.as_uri() + hash_)
        return page

    yield go
    for context in contexts:
        context.close()
    assert faults == []


def listed(page: Any) -> list[str]:
    return [button.get_attribute("data-query") for button in page.locator("#list button").all()]


def test_queries_are_sorted_filtered_and_searched(visit: Callable[..., Any]) -> None:
    page = visit()
    assert listed(page)[0] == "q helped"
    assert listed(page)[-1] == "q/hurt"
    page.select_option("#order", "loss")
    assert listed(page)[0] == "q/hurt"
    page.get_by_label("Zero in both 2").check()
    assert set(listed(page)) == {"q-outside", "q-pool"}
    page.get_by_label("outside the pool 1").check()
    assert listed(page) == ["q-outside"]
    page.get_by_label("All 5").check()
    page.fill("#search", "ANOTHER thing")
    assert listed(page) == ["q/hurt"]
    assert page.locator("#count").inner_text() == "1 of 5 queries"
    page.fill("#search", "nothing like it")
    assert "No query fits" in page.locator("#list").inner_text()


def test_a_query_shows_both_lists_with_marks_in_words(visit: Callable[..., Any]) -> None:
    page = visit()
    page.locator("#list button").first.click()
    left, right = page.locator(".side").all()
    assert left.locator(".doc").count() == 10
    page.get_by_role("button", name="Show the top 15").click()
    assert page.locator(".side").first.locator(".doc").count() == 15
    first, second = right.locator(".doc").all()[:2]
    assert "⊘ excluded" in first.inner_text()
    assert first.locator(".rank").inner_text() == UNKNOWN
    assert "★ gold" in second.inner_text()
    assert second.locator(".rank").inner_text() == "1"
    assert "base: 15" in second.inner_text()
    assert "base: rank 15 · <i>other</i>: rank 1" in page.locator(".missed").inner_text()


def test_pooled_judgments_mark_what_gold_lacks(visit: Callable[..., Any]) -> None:
    page = visit(hash_="#q=q%2Fhurt")
    assert "◆ pooled only" in page.locator(".side").nth(1).locator(".doc").first.inner_text()
    assert "hurt" in page.locator(".values").inner_text()
    page.select_option("#judgment", label="pooled")
    assert "relevant in the top 10: 2 of 2" in page.locator(".side").nth(1).inner_text()


def test_hostile_text_is_shown_and_does_nothing(visit: Callable[..., Any]) -> None:
    page = visit(hash_="#q=q%20helped")
    assert HOSTILE in page.locator(".query").inner_text()
    page.get_by_role("button", name="Open all texts").click()
    assert HOSTILE in page.locator(".side").nth(1).inner_text()
    assert page.evaluate("window.broken") is None
    assert page.locator("img").count() == 0
    assert "evil<b>" in page.locator(".side").nth(1).inner_text()


def test_a_long_text_says_that_it_is_cut(visit: Callable[..., Any]) -> None:
    page = visit(hash_="#q=q%20helped")
    document = page.locator(".side").first.locator(".doc").nth(1)
    document.locator("summary").click()
    assert "cut: the first 1,200 of 5,000 characters" in document.inner_text()


def test_the_keyboard_is_enough(visit: Callable[..., Any]) -> None:
    page = visit()
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    page.locator("#list button").first.focus()
    page.keyboard.press("Enter")
    assert page.locator(".query h2").inner_text() == "q helped"
    page.keyboard.press("ArrowDown")
    second = page.locator(".query h2").inner_text()
    assert second == listed(page)[1]
    assert page.evaluate("document.activeElement.dataset.query") == second
    page.keyboard.press("End")
    assert page.locator(".query h2").inner_text() == "q/hurt"


def test_the_address_names_the_query_and_back_returns(visit: Callable[..., Any]) -> None:
    page = visit()
    page.locator("#list button").first.click()
    assert page.url.endswith("#q=q%20helped")
    page.go_back()
    assert "Choose a query" in page.locator("#detail").inner_text()


def test_a_phone_shows_one_thing_at_a_time_without_scrolling_sideways(visit: Callable[..., Any]) -> None:
    page = visit(width=375, height=700)
    wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    assert not page.evaluate(wide)
    page.locator("#list button").first.click()
    assert not page.locator("#list").is_visible()
    assert not page.evaluate(wide)
    page.get_by_role("button", name="All queries").click()
    assert page.locator("#list").is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(visit: Callable[..., Any], scheme: str) -> None:
    page = visit(scheme=scheme, hash_="#q=q%20helped")
    for selector in (
        ".query .words",
        ".facts",
        ".mark.gold",
        ".mark.out",
        "#list .change.helped",
        "#list .change.hurt",
    ):
        assert contrast(page, selector) >= 4.5, selector  # WCAG 2.2, 1.4.3


def contrast(page: Any, selector: str) -> float:
    """Return the contrast of the first such element's text with the nearest ground behind it (WCAG 2.2)."""
    ink, ground = page.evaluate(
        """selector => {
          let node = document.querySelector(selector);
          const ink = getComputedStyle(node).color;
          while (node && /, 0\\)$|transparent/.test(getComputedStyle(node).backgroundColor)) node = node.parentElement;
          return [ink, getComputedStyle(node).backgroundColor];
        }""",
        selector,
    )
    darker, lighter = sorted(luminance(colour) for colour in (ink, ground))
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    channels = [int(value) / 255 for value in re.findall(r"\d+", colour)[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
