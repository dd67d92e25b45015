"""The site in a real browser: sorting, filters, phones, dark mode, and that nothing hostile or foreign happens."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from obliq_eval.leaderboard import families, paper, site
from obliq_eval.leaderboard.entries import (
    BENCH,
    MINI_BENCH,
    Board,
    Cost,
    Entry,
    Figure,
    TablePage,
    TextTable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHROMIUM = shutil.which("chromium-headless-shell")
Image = pytest.importorskip("PIL.Image", reason="no Pillow here: pip install pillow")
playwright = pytest.importorskip("playwright.sync_api", reason="no playwright here: pip install playwright")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no browser here: apt-get install --no-install-recommends chromium-headless-shell"
)

HOSTILE = ("<script>window.hit=1</script>", "a | b", '"><img src=x onerror="window.hit=1">')
GROUNDS = {"light": (251, 250, 248), "dark": (21, 23, 26)}
COMMITTED = Path(__file__).parents[2] / "leaderboards" / "site"
PAGES = sorted(str(path.relative_to(COMMITTED).with_suffix("")) for path in COMMITTED.rglob("*.html"))
PHONE = {"width": 390, "height": 844}
MEASURES = ("ndcg@10", "ndcg@50", "recall@10", "recall@50", "recall@100", "recall@1000")
# Contrast after WCAG 2: relative luminance of the text against the first ground behind it that is not transparent.
CONTRAST = """() => {
  const channels = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const luminance = (colour) => channels(colour).slice(0, 3)
    .map((c) => c / 255).map((c) => c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
  const ground = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      if (channels(colour)[3] !== 0) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !element.checkVisibility() || element.closest("script, style, title")) continue;
    const style = getComputedStyle(element);
    const text = element.ownerSVGElement ? style.fill : style.color;
    const [a, b] = [luminance(text), luminance(ground(element))].sort((x, y) => y - x);
    found.push([(a + .05) / (b + .05), element.textContent.trim().slice(0, 40)]);
  }
  return found.sort((x, y) => x[0] - y[0]);
}"""


def entry(label: str, value: str, *, measured: bool = False, **fields: Any) -> Entry:
    """Return a row; a measured one has an interval, and an empty value is unknown."""
    number = float(value or 0)
    ends = (number - 0.02, number + 0.02) if measured else (None, None)
    gold = {
        "ndcg@10": Figure(number, 3, "a source", "a place", *ends),
        "recall@10": Figure(number / 2, 3, "a source", "a place"),
        "recall@100": Figure(number, 3, "a source", "a place"),
    }
    given = {"description": f"What {label} is.", "ran_by": "us" if measured else "paper", **fields}
    return Entry(
        system=label, label=label, task="T", figures={"gold": gold} if value else {},
        scored_by="recomputed" if measured else "reported", **given,
    )  # fmt: skip


ENTRIES = (
    entry(
        "beta", "0.300", cost=Cost(2, 4, None, "a machine", "everything there is to do in it", "a source", "Table 8")
    ),
    entry("alpha", "0.200", measured=True),
    entry("gamma", "0.100", description="Late interaction."),
    *(entry(name, "0.050", measured=True, licence=name, description=name) for name in HOSTILE),
    entry("delta", ""),
    entry("a system with a very long name that does not fit anywhere-" + "x" * 60, "0.010"),
    entry("ceiling", "0.900", oracle=True),
)

FAMILY = TablePage(
    "mini-toy",
    f"toy on {MINI_BENCH}: what was trained",
    families.GROUP,
    tuple(
        TextTable(
            "Measured here: held-out queries (n = 9)",
            families.COLUMNS,
            tuple((name, "0.2500", None, *["[-0.2500, -0.2500]"] * 6) for name in (*HOSTILE, "a-member-" + "x" * 60)),
            name,
        )
        for name in ("OBLIQ-Mini-Math", "OBLIQ-Mini-Writing")
    ),
    HOSTILE,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a site with an official and a mini board, the paper's tables and a family's."""
    target = tmp_path_factory.mktemp("site")
    official = Board(
        BENCH, "OBLIQ-Math", "OBLIQ-Math", "About it.", 151, ("gold", "pooled"), MEASURES, ENTRIES, "abc", ("Note.",)
    )
    mini = replace(official, name=MINI_BENCH, task="OBLIQ-Mini-Math", title="OBLIQ-Mini-Math", entries=ENTRIES[1:3])
    site.write([official, mini], (*paper.table_pages(), FAMILY), target)
    return target


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def visit(browser: Any, folder: Path) -> Iterator[Callable[..., Any]]:
    """Return a function that opens a page, of the site made here or by its path.

    Whatever the page says, or asks of anything but a file, is a failure.
    """
    said: list[str] = []
    contexts = []

    def open_page(name: str | Path = "OBLIQ-Math", **context: Any) -> Any:
        opened = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **context})
        contexts.append(opened)
        page = opened.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: None if request.url.startswith("file:") else said.append(request.url))
        page.route(lambda url: not url.startswith("file:"), lambda route: route.abort())
        page.goto((folder / f"{name}.html").as_uri())
        return page

    yield open_page
    for opened in contexts:
        opened.close()
    assert said == []


def names(page: Any) -> list[str]:
    """Return the names in the task's table that are to be seen, from the top down."""
    found: list[str] = page.locator("#board tbody tr:visible th").all_inner_texts()
    return [name.split("\n")[0].removesuffix("oracle").strip() for name in found]


def heading(page: Any, name: str) -> Any:
    return page.locator("#board thead th", has=page.get_by_role("button", name=name, exact=True)).first


GIVEN = [e.label for e in ENTRIES]


def test_a_click_sorts_and_the_third_restores_the_given_order(visit: Callable[..., Any]) -> None:
    page = visit()
    assert names(page) == GIVEN
    column = heading(page, "NDCG@10")
    assert column.get_attribute("aria-sort") is None
    column.get_by_role("button").click()
    assert column.get_attribute("aria-sort") == "descending"
    assert names(page)[:4] == ["ceiling", "beta", "alpha", "gamma"]
    assert names(page)[-1] == "delta"
    column.get_by_role("button").click()
    assert column.get_attribute("aria-sort") == "ascending"
    assert names(page)[-2:] == ["ceiling", "delta"]  # the unknown stays last
    column.get_by_role("button").click()
    assert column.get_attribute("aria-sort") is None
    assert names(page) == GIVEN


def test_the_keyboard_sorts_and_only_one_column_is_marked(visit: Callable[..., Any]) -> None:
    page = visit()
    heading(page, "NDCG@10").get_by_role("button").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Space")
    assert page.locator("#board [aria-sort]").count() == 1
    assert heading(page, "System").get_attribute("aria-sort") == "ascending"
    assert [n for n in names(page) if n in {"alpha", "beta", "gamma", "delta"}] == ["alpha", "beta", "delta", "gamma"]
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineWidth")
    assert outline == "3px"


def test_filters_by_text_by_who_scored_and_by_oracle(visit: Callable[..., Any]) -> None:
    page = visit()
    page.get_by_label("reported").focus()
    page.keyboard.press("ArrowLeft")  # a group of radio buttons: arrows choose
    assert names(page) == ["alpha", *HOSTILE]
    page.get_by_label("all", exact=True).check(force=True)
    page.get_by_label("oracles").uncheck(force=True)
    assert "ceiling" not in names(page)
    page.get_by_label("Find").fill("INTERACTION late")
    assert names(page) == ["gamma"]
    assert page.get_by_role("status").inner_text() == f"1 of {len(ENTRIES)} systems"
    page.get_by_label("Find").fill("nothing like it")
    assert names(page) == []
    assert page.get_by_text("No row fits these filters.").is_visible()


def test_sorting_keeps_the_filter(visit: Callable[..., Any]) -> None:
    page = visit()
    page.get_by_label("oracles").uncheck(force=True)
    heading(page, "NDCG@10").get_by_role("button").click()
    assert names(page)[:2] == ["beta", "alpha"]


@pytest.mark.parametrize(
    "name", ["index", "OBLIQ-Math", "OBLIQ-Mini-Math", "table-5", "table-h1", "table-d1", "mini-toy"]
)
@pytest.mark.parametrize("width", [320, 390, 800, 1280])
def test_no_page_is_wider_than_its_window(visit: Callable[..., Any], name: str, width: int) -> None:
    page = visit(name, viewport={"width": width, "height": 844})
    page.locator("details").evaluate_all("all => all.forEach((one) => { one.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_there_are_committed_pages_of_boards_and_queries() -> None:
    assert {"index", "table-5", "OBLIQ-Math", "OBLIQ-Mini-Math", "queries/OBLIQ-Mini-Math"} <= set(PAGES)


@pytest.mark.parametrize("name", PAGES)
def test_committed_pages_fit_a_phone_say_nothing_and_ask_for_nothing(visit: Callable[..., Any], name: str) -> None:
    page = visit(COMMITTED / name, viewport=PHONE)
    page.locator("details").evaluate_all("all => all.forEach((one) => { one.open = true; })")
    assert page.locator("h1").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]


def test_on_a_phone_the_table_scrolls_in_its_own_box_beside_the_names(visit: Callable[..., Any]) -> None:
    page = visit(viewport=PHONE)
    box = page.locator(".scroll", has=page.locator("#board"))
    assert box.evaluate("(e) => e.scrollWidth > e.clientWidth")
    first = page.locator("#board tbody th").first
    before = first.bounding_box()
    box.evaluate("(e) => { e.scrollLeft = 400; }")
    assert first.bounding_box() == before
    assert before["width"] < 200  # most of the window is left for numbers


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["index", "OBLIQ-Math", "table-5", "mini-toy"])
def test_every_text_has_enough_contrast(visit: Callable[..., Any], name: str, scheme: str) -> None:
    """WCAG 2 AA asks for 4.5 : 1 for text of this size."""
    page = visit(name, color_scheme=scheme)
    page.locator("details").evaluate_all("all => all.forEach((one) => { one.open = true; })")
    found = page.evaluate(CONTRAST)
    assert len(found) > 20
    assert found[0][0] >= 4.5, found[:3]


def test_dark_mode_is_dark(visit: Callable[..., Any]) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    for scheme, colour in GROUNDS.items():
        assert visit(color_scheme=scheme).evaluate(ground) == f"rgb{colour}"


@pytest.mark.parametrize("name", ["index", "OBLIQ-Math", "OBLIQ-Mini-Math", "mini-toy"])
def test_hostile_names_are_texts(visit: Callable[..., Any], name: str) -> None:
    page = visit(name)
    assert page.evaluate("window.hit") is None
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 1
    if name == "OBLIQ-Math":
        assert [n for n in names(page) if n in HOSTILE] == list(HOSTILE)


def test_without_scripts_the_tables_are_whole_and_no_control_is_shown(visit: Callable[..., Any]) -> None:
    page = visit(java_script_enabled=False)
    assert names(page) == GIVEN
    assert page.get_by_role("button").count() == 0
    assert not page.locator("form").is_visible()


def test_on_paper_nothing_is_cut_off(visit: Callable[..., Any]) -> None:
    page = visit(viewport={"width": 1032, "height": 720})  # A4 across within its margins, at 96 px an inch
    page.emulate_media(media="print")
    assert not page.locator("nav").is_visible()
    assert not page.locator("form").is_visible()
    assert page.locator("#board").evaluate("(e) => e.getBoundingClientRect().right") <= 1032


def test_pictures_of_the_pages(visit: Callable[..., Any], tmp_path: Path) -> None:
    """Set OBLIQ_SHOTS to a folder to keep them and look at them."""
    kept = Path(os.environ.get("OBLIQ_SHOTS", tmp_path))
    for scheme in ("light", "dark"):
        for width in (1280, 390):
            for name in ("index", "OBLIQ-Math", "OBLIQ-Mini-Math"):
                page = visit(name, color_scheme=scheme, viewport={"width": width, "height": 844})
                path = kept / f"{name}-{scheme}-{width}.png"
                page.screenshot(path=path, full_page=True)
                with Image.open(path) as picture:
                    counts = {colour: count for count, colour in picture.convert("RGB").getcolors(1 << 24)}
                    assert picture.width == width
                assert max(counts, key=counts.__getitem__) == GROUNDS[scheme]
                assert len(counts) > 100  # letters have edges of many shades; an empty page has one colour
