"""Models by name: found, refused, copied and loaded."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from importlib.metadata import EntryPoint
from importlib.resources import files
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import mteb
import pytest

from obliq_eval import catalogue as module
from obliq_eval.catalogue import ModelEntry, catalogue, resolve, to_meta
from obliq_eval.errors import UserError
from obliq_models import register
from obliq_models.zoo import ENTRIES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOADER = "tests_loader:load"


def entry(name: str, alias: str, **rest: Any) -> ModelEntry:
    return ModelEntry(name=name, alias=alias, loader=LOADER, revision="1", **rest)


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget what a test registers, here and in mteb."""
    from mteb.models.model_implementations import MODEL_REGISTRY

    before = dict(MODEL_REGISTRY)
    monkeypatch.setattr(module, "_registered", {})
    module._installed.cache_clear()
    yield
    module._installed.cache_clear()
    for name in set(MODEL_REGISTRY) - set(before):
        del MODEL_REGISTRY[name]


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that pretends that packages with these models are installed."""

    def install(**models: Any) -> None:
        def points(group: str) -> list[EntryPoint]:
            assert group == "obliq.models"
            made = []
            for package, value in models.items():
                point = EntryPoint(f"{package}-models", f"{package}.models:ALL", group)
                vars(point).update(dist=SimpleNamespace(name=package))
                monkeypatch.setitem(sys.modules, f"{package}.models", SimpleNamespace(ALL=value))  # type: ignore[arg-type]
                monkeypatch.setitem(sys.modules, package, SimpleNamespace())  # type: ignore[arg-type]
                if value is None:
                    monkeypatch.delitem(sys.modules, f"{package}.models")
                made.append(point)
            return made

        monkeypatch.setattr(module, "entry_points", points)

    return install


def test_the_zoo_is_found_through_its_entry_point() -> None:
    assert {e.alias for e in ENTRIES} <= set(catalogue())
    assert resolve("minilm") is resolve("obliq/all-MiniLM-L6-v2")


def test_every_first_stage_system_of_the_paper_has_an_entry_and_says_its_terms() -> None:
    rows = {e.paper_row for e in ENTRIES} - {None}
    assert {"bm25", "lateon", "qwen3-embed-0.6b", "qwen3-embed-4b", "gemini-2-embedding", "obliq-ir"} <= rows
    assert {"obliq-ir-merged", "obliq-ir-no-distillation", "authorship-encoder"} <= rows
    paper = json.loads((files("obliq_eval.leaderboard") / "paper.json").read_text("utf-8"))
    assert rows <= {row["system"] for row in paper["results"]}
    assert all(e.licence for e in ENTRIES)
    assert not [e.alias for e in ENTRIES if "/" in e.base and not e.base_licence and not e.served and not e.risk]


def test_a_served_model_has_no_weights_to_be_had() -> None:
    meta = to_meta(resolve("gemini-2-embedding"))
    assert (meta.open_weights, meta.framework) == (False, ["API"])
    assert to_meta(resolve("minilm")).open_weights


def test_a_meta_names_the_model_that_it_was_made_from_and_no_folder() -> None:
    bases = ("org/base@0123abc", "org/base", "/home/me/base", "")
    metas = [to_meta(entry("a/one", "one", base=base)) for base in bases]
    assert [meta.adapted_from for meta in metas] == ["org/base", "org/base", None, None]


def test_an_unknown_name_is_refused_with_a_near_one() -> None:
    with pytest.raises(UserError, match="no model is called 'stylometri'; did you mean \"stylometry\""):
        resolve("stylometri")


def test_reading_the_catalogue_loads_nothing_heavy() -> None:
    code = (
        "import sys, json\nfrom obliq_eval.catalogue import catalogue\ncatalogue()\n"
        "print(json.dumps([m for m in ('torch', 'mteb', 'sklearn', 'scipy', 'bm25s', 'datasets', 'numpy')"
        " if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def test_one_entry_many_entries_and_metas_are_taken(packages: Callable[..., None]) -> None:
    meta = mteb.get_model_meta("mteb/baseline-bm25s").model_copy(update={"name": "third/Party"})
    packages(one=entry("a/one", "one"), many=[entry("a/two", "two")], named={"x": entry("a/three", "three")}, m=meta)
    assert set(catalogue()) == {"one", "two", "three", "party"}
    assert to_meta(resolve("party")) is meta
    assert resolve("third/Party").kind == "lexical"


def test_a_broken_package_is_reported_and_left_out(packages: Callable[..., None]) -> None:
    packages(good=entry("a/one", "one"), broken=None, wrong=[3])
    with pytest.warns(RuntimeWarning) as caught:
        assert set(catalogue()) == {"one"}
    texts = [str(warning.message) for warning in caught]
    assert len(texts) == 2
    assert "package broken (broken-models = broken.models:ALL)" in texts[0]
    assert "package wrong" in texts[1]
    assert "not int" in texts[1]


@pytest.mark.parametrize(
    ("second", "what"), [(entry("b/other", "one"), "alias 'one'"), (entry("a/one", "uno"), "name 'a/one'")]
)
def test_a_collision_names_both_origins(packages: Callable[..., None], second: ModelEntry, what: str) -> None:
    packages(first=entry("a/one", "one"), second=second)
    with pytest.raises(UserError, match=f"the {what} is claimed twice") as caught:
        catalogue()
    assert "package first" in str(caught.value)
    assert "package second" in str(caught.value)


def test_register_adds_until_the_process_ends(packages: Callable[..., None]) -> None:
    packages(first=entry("a/one", "one"))
    mine = register(entry("b/mine", "mine"))
    assert resolve("b/mine") is mine
    assert register(mine) == mine  # again: no harm
    assert register(entry("b/renamed", "x"), alias="y").alias == "y"
    with pytest.raises(UserError, match=r"package first .* and by b/z from obliq_models.register"):
        register(entry("b/z", "one"))
    assert set(catalogue()) == {"one", "mine", "y"}


@pytest.mark.parametrize("name", ["mine", "a/b/c", "a b/c", "a/b@c", "a/b__c", "a/b+c"])
def test_names_that_would_mean_something_else_are_refused(name: str) -> None:
    with pytest.raises(UserError, match="is not organisation/model"):
        entry(name, "mine")


@pytest.mark.parametrize("alias", ["a/b", "a b", "a@b", "a+b", "fuse:a", "a.toml", ""])
def test_aliases_that_would_mean_something_else_are_refused(alias: str) -> None:
    with pytest.raises(UserError, match="may not hold"):
        entry("a/b", alias)


def test_a_meta_loads_copies_pickles_and_is_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def load(name: str, **settings: Any) -> SimpleNamespace:
        seen.update(name=name, **settings)
        return SimpleNamespace()

    monkeypatch.setitem(sys.modules, "tests_loader", SimpleNamespace(load=load))  # type: ignore[arg-type]
    meta = to_meta(
        entry("a/b", "b", settings={"pooling": "cls"}, query_prefix="q: ", document_length=7, licence="Apache-2.0")
    )
    assert meta == copy.deepcopy(meta) == pickle.loads(pickle.dumps(meta))  # noqa: S301 -- our own bytes
    assert meta.to_dict()["loader"] == LOADER
    assert (meta.license, meta.max_tokens, meta.use_instructions) == ("apache-2.0", 7, True)
    model = meta.load_model(device="cpu")
    assert seen == {
        "name": "a/b",
        "revision": "1",
        "device": "cpu",
        "pooling": "cls",
        "query_prefix": "q: ",
        "document_length": 7,
    }
    assert model.mteb_model_meta.name == "a/b"
    assert to_meta(entry("a/b", "b", licence="ask first")).license is None


@pytest.mark.parametrize("loader", ["", "no_function", len])
def test_a_loader_that_no_other_process_could_find_is_refused(loader: Any) -> None:
    with pytest.raises(UserError, match='not of the form "module:function"'):
        ModelEntry(name="me/mine", alias="mine", loader=loader, revision="1")
