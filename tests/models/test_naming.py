"""What stands after `-m`: names, checkpoints, files, fusions; and what is said of what means nothing."""

from __future__ import annotations

import hashlib
import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from obliq_eval.catalogue import resolve, to_meta
from obliq_eval.errors import UserError
from obliq_models import derived, naming
from obliq_models.naming import find, origins

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import datasets


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    folder = tmp_path / "run 7"
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "some/base"}))
    (folder / "adapter_model.safetensors").write_bytes(b"weights")
    return folder


@pytest.mark.parametrize("text", ["bm25", "obliq/bm25", "obliq-ir", "DataScience-UIBK/OBLIQ-IR-3B-LoRA"])
def test_a_name_is_the_tables(text: str) -> None:
    assert find(text) == resolve(text)


def test_a_checkpoint_takes_over_what_holds_and_nothing_else(adapter: Path) -> None:
    found, zoo = find(f"obliq-ir@{adapter}"), resolve("obliq-ir")
    assert (found.name, found.loader) == ("local/obliq-ir-run-7", "obliq_models.retrievers.obliq_ir:load")
    assert (found.query_prefix, found.document_length) == (zoo.query_prefix, zoo.document_length)
    assert found.settings == {"dtype": "bfloat16", "path": str(adapter.resolve())}
    assert (found.dims, found.paper_row, found.base, found.base_licence) == (None, None, "some/base", "")
    assert (found.licence, found.risk) == (zoo.licence, zoo.risk)
    assert len(found.revision) == 64


def test_the_revision_of_a_checkpoint_covers_its_content_and_its_base_and_not_its_place(
    adapter: Path, tmp_path: Path
) -> None:
    first = find(f"obliq-ir@{adapter}").revision
    assert find(f"obliq-ir-no-distillation@{adapter}").revision == first  # the same weights, used in the same way
    moved = adapter.rename(tmp_path / "moved")
    assert find(f"obliq-ir@{moved}").revision == first
    (moved / "adapter_model.safetensors").write_bytes(b"other")
    second = find(f"obliq-ir@{moved}").revision
    base = tmp_path / "base"
    base.mkdir()
    (base / "model.safetensors").write_bytes(b"1")
    (moved / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(base)}))
    third = find(f"obliq-ir@{moved}").revision
    (base / "model.safetensors").write_bytes(b"2")
    assert len({first, second, third, find(f"obliq-ir@{moved}").revision}) == 4


def test_minilm_takes_a_checkpoint_on_the_installed_package(adapter: Path) -> None:
    found = find(f"minilm@{adapter}")
    assert found.settings == {"base": resolve("minilm").name, "dtype": "float32", "path": str(adapter.resolve())}
    assert (found.query_length, found.query_prefix) == (256, None)


def test_a_folder_called_like_a_model_gets_an_alias_of_its_own(adapter: Path) -> None:
    found = find(f"obliq-ir@{adapter.rename(adapter.with_name('merged'))}")
    assert (found.name, found.alias) == ("local/obliq-ir-merged", "local-obliq-ir-merged")


@pytest.mark.parametrize("name", ["a  b", "x@y+z:w", "__", "é" * 90, "model.toml", ".hidden"])
def test_any_folder_makes_a_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    assert find(f"obliq-ir@{folder}").name.startswith("local/obliq-ir-")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bm26", 'no model is called .bm26.; did you mean "bm25"'),
        ("obliq-ir@", "names no folder after the @: write obliq-ir@FOLDER"),
        ("obliq-ir@nowhere", "nowhere holds no model"),
        ("bm25@nowhere", "bm25 takes no checkpoint: it is lexical"),
        ("obliq-it@x", "no model is called 'obliq-it'.*write NAME@FOLDER"),
        ("no.toml", r"cannot read no\.toml"),
        ("fuse:bm25", r"does not name two models: write fuse:A,B"),
        ("fuse:bm25,", "does not name two models"),
        ("fuse:bm25,bm25", "names a model twice"),
        ("fuse:bm25,fuse:minilm,bm25", "fuses a fusion"),
        ("fuse:bm26,minilmm", "fuse:bm26,minilmm: 2 problems"),
    ],
)
def test_what_means_nothing_is_said(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        find(text)


def test_the_models_that_a_text_builds_on_are_told_without_reading_weights(tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text('name = "x"\nmodel = "obliq-ir"\n')
    (tmp_path / "own.toml").write_text('name = "x"\npath = "weights"\n')
    for text, aliases in (
        ("obliq-ir@nowhere", ["obliq-ir"]),
        (f"fuse:bm25,obliq-ir@x,{tmp_path}/m.toml", ["bm25", "obliq-ir"]),
        (f"{tmp_path}/own.toml", []),
    ):
        assert [entry.alias for entry in origins(text)] == aliases


def test_a_file_changes_settings_of_a_model_of_the_table(tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text(
        'name = "terse"\nmodel = "obliq-ir"\ninstruction = "Match the style. "\nquery_length = 64\nrevision = "abc"\n'
    )
    found, zoo = find(str(tmp_path / "m.toml")), resolve("obliq-ir")
    assert (found.name, found.query_length, found.query_prefix) == ("local/terse", 64, "query: ")
    assert found.settings["instruction"] == "Match the style. "
    assert {key: found.settings[key] for key in ("loader", "of", "at")} == {
        "loader": zoo.loader,
        "of": zoo.name,
        "at": "abc",
    }
    assert found.revision != zoo.revision


def test_a_changed_model_is_loaded_by_its_own_loader(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, dict[str, Any]]] = []

    def loader(reference: str) -> Callable[..., str]:
        return lambda name, **settings: calls.append((name, {"by": reference, **settings})) or "model"  # type: ignore[func-returns-value]

    monkeypatch.setattr(derived, "Loader", loader)
    assert derived.load("local/x", "hash", loader="m:f", of="org/model", at="main", dtype="float32") == "model"
    assert calls == [("org/model", {"by": "m:f", "revision": "main", "dtype": "float32"})]


# --- fusion


def test_a_fusion_is_a_pipeline_whose_revision_covers_both(adapter: Path) -> None:
    found = find(f"fuse:bm25,obliq-ir@{adapter}")
    assert (found.name, found.kind) == ("local/fuse-bm25-obliq-ir-run-7", "pipeline")
    assert (found.settings["strategy"], found.settings["rrf_k"]) == ("rrf", 60)
    assert found.risk == resolve("obliq-ir").risk
    lines = f"obliq/bm25\t{resolve('bm25').revision}\nlocal/obliq-ir-run-7\t{find(f'obliq-ir@{adapter}').revision}"
    assert found.revision == hashlib.sha256(f"{lines}\n{sorted(naming.FUSION.items())}".encode()).hexdigest()
    (adapter / "adapter_model.safetensors").write_bytes(b"other")
    assert find(f"fuse:bm25,obliq-ir@{adapter}").revision != found.revision


def test_a_fusion_sums_reciprocal_ranks_and_an_excluded_document_takes_none(
    table: Callable[..., datasets.Dataset],
) -> None:
    """Under bm25 and its okapi variant "cat" ranks x first (it is shorter), then a, then b.

    With x excluded, a is first in both: 2 · ½ · 1/61; b second: 2 · ½ · 1/62. If x kept its rank, a had 1/62.
    """
    model = to_meta(find("fuse:bm25,bm25-okapi")).load_model(device="cpu")
    corpus = table(
        {"x": "cat cat cat", "a": "cat cat dogs", "b": "cat dogs trees and rather more beside it", "c": "sun"}
    )
    told = {"task_metadata": None, "hf_split": "test", "hf_subset": "default", "encode_kwargs": {}}
    model.index(corpus, **told)  # type: ignore[arg-type]
    queries = table({"q": "cat"}, {"q": ["x"]})
    answers = model.search(queries, top_k=10, **told)["q"]  # type: ignore[arg-type]
    assert answers == pytest.approx({"a": 1 / 61, "b": 1 / 62})
    assert model.accepts_exclusions  # type: ignore[union-attr]
    plain = model.search(table({"q": "cat"}), top_k=10, **told)["q"]  # type: ignore[arg-type]
    assert plain["a"] == pytest.approx(1 / 62)


def test_what_an_agent_searches_with_is_told_of_and_never_itself(tmp_path: Path) -> None:
    """Its terms and risks hold as well: of the retriever in the file, or else of the table's own."""
    assert [entry.alias for entry in origins("gpt-multihop")] == ["gpt-multihop", "gemini-2-embedding"]
    file = tmp_path / "agent.toml"
    start = 'name = "x"\nmodel = "oracle-tournament"\n'
    file.write_text(start + 'retriever = ["luar", "fuse:bm25,obliq-ir"]\n')
    assert [entry.alias for entry in origins(str(file))] == ["oracle-tournament", "luar", "bm25", "obliq-ir"]
    for text in ("agent.toml", "fuse:bm25,agent.toml"):
        file.write_text(f'{start}retriever = "{text.replace("agent", str(tmp_path / "agent"))}"\n')
        with pytest.raises(UserError, match="searches with itself"):
            find(str(file))


def test_a_revision_covers_what_links_lead_to_and_not_where_a_folder_lies(adapter: Path, tmp_path: Path) -> None:
    pooling = tmp_path / "elsewhere"
    pooling.mkdir()
    (pooling / "config.json").write_text("1")
    (adapter / "1_Pooling").symlink_to(pooling, target_is_directory=True)
    found = derived.fingerprint(adapter)
    plain = tmp_path / "naïve @,+ folder"
    shutil.copytree(adapter, plain)  # the link's content in its place
    assert derived.fingerprint(plain) == found
    (pooling / "config.json").write_text("2")
    assert derived.fingerprint(adapter) != found
    (adapter / "loop").symlink_to(adapter, target_is_directory=True)
    with pytest.raises(UserError, match="loop is a link to a folder that it is in"):
        derived.fingerprint(adapter)


def test_the_place_may_be_written_in_any_way(adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative, through a link, with blanks, accents and signs that mean something elsewhere: one revision."""
    odd = adapter.rename(tmp_path / "naïve @,+ folder")
    (tmp_path / "link").symlink_to(odd, target_is_directory=True)
    monkeypatch.chdir(tmp_path)
    found = [find(f"obliq-ir@{place}") for place in (odd, odd.name, f"./{odd.name}/", "link")]
    assert len({entry.revision for entry in found}) == 1
    assert {entry.settings["path"] for entry in found} == {str(odd)}
