"""The tiny twins, loaded from the loopback hub as their real counterparts are, and the spoilt ones looked into.

Loading happens in two processes of their own, since the client reads `HF_ENDPOINT` when it is imported and remote
code is cached by commit: one loads every sound twin from the hub, one loads spoilt twins from their folders.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from obliq_eval.demo.hub import LoopbackHub
from obliq_eval.demo.twins import ADAPTER_ID, BASE_ID, MERGED_ID, SABOTAGE, TWINS, twin_repos, twin_revision
from obliq_models.pins import PINS

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from obliq_eval.demo.hub import Repo

pytestmark = pytest.mark.slow  # every twin is written twice and loaded in processes of its own

MUD, CRUD = "rrivera1849/LUAR-MUD", "rrivera1849/LUAR-CRUD"
QWEN = ("Qwen/Qwen3-Embedding-0.6B", "Qwen/Qwen3-Embedding-4B")
STYLE = ("AnnaWegmann/Style-Embedding", "StyleDistance/styledistance", "StyleDistance/mstyledistance", "AIDA-UPM/star")
LATE = "lightonai/LateOn"

COMMON = """
import json, sys
import torch
from sentence_transformers import MultiVectorEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from transformers import AutoModel, AutoTokenizer

torch.set_num_threads(1)
TEXTS = ["query: why is it so?", "passage: " + "the old allotment, in the rain " * 9]
remote = {"trust_remote_code": True}

def first_state_change(base):
    "How much the first token's state changes with the last token, in units of the state's largest value."
    model = AutoModel.from_pretrained(base, dtype=torch.float32, **remote)
    ids = torch.tensor([[0, 5, 6, 7, 8, 9, 10, 11], [0, 5, 6, 7, 8, 9, 10, 99]])
    with torch.no_grad():
        states = model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[:, 0]
    return float((states[0] - states[1]).abs().max() / states[0].abs().max())

def llama(base, adapter=None):
    args = {"model_kwargs": {"dtype": torch.float32, **remote}, "config_kwargs": remote, "processor_kwargs": remote}
    first = Transformer(base, **args)
    if adapter:
        first.model.load_adapter(adapter)
    pooling = Pooling(first.get_embedding_dimension(), "mean")
    return SentenceTransformer(modules=[first, pooling, Normalize()], device="cpu")
"""

SOUND = (
    COMMON
    + f"""
found = {{}}
tokenizer = AutoTokenizer.from_pretrained({BASE_ID!r}, **remote)
ids = tokenizer(["one", "rather more than one"], padding=True)["input_ids"]
found["llama tokens"] = {{
    "first": [tokenizer.convert_ids_to_tokens(row[0]) for row in ids],
    "last of the shorter": tokenizer.convert_ids_to_tokens(ids[0][-1]),
    "pad": tokenizer.pad_token,
    "adapter's": AutoTokenizer.from_pretrained({ADAPTER_ID!r})("one")["input_ids"] == tokenizer("one")["input_ids"],
}}
model = AutoModel.from_pretrained({BASE_ID!r}, **remote)
found["base"] = [type(model).__name__, model.config.model_type, model.config.pooling, str(model.dtype)]
found["change"] = {{name: first_state_change(name) for name in ({BASE_ID!r}, {MERGED_ID!r})}}
adapted = llama({BASE_ID!r}, {ADAPTER_ID!r})
vectors = {{
    "base": llama({BASE_ID!r}).encode(TEXTS),
    "adapted": adapted.encode(TEXTS),
    "merged": llama({MERGED_ID!r}).encode(TEXTS),
    "by name": SentenceTransformer({ADAPTER_ID!r}, device="cpu", **remote).encode(TEXTS, normalize_embeddings=True),
}}
adapted[0].auto_model.eval()
long = adapted.tokenizer("word " * 3000, truncation=True, max_length=1024, return_tensors="pt")
found["long"] = list(adapted[0].auto_model(**long).last_hidden_state.shape)
found["llama vectors"] = {{name: value.tolist() for name, value in vectors.items()}}
for name in {QWEN!r}:
    model = SentenceTransformer(name, device="cpu", model_kwargs={{"dtype": torch.float32}})
    tokens = model.tokenizer(["one", "rather more than one " * 9], padding=True, truncation=True, max_length=6)
    states = model[0].auto_model(input_ids=torch.tensor([[5, 6, 7], [5, 6, 99]])).last_hidden_state
    found[name] = {{
        "modules": [type(part).__name__ for part in model],
        "pooling": model[1].pooling_mode,
        "prompts": model.prompts,
        "tokens": [model.tokenizer.convert_ids_to_tokens(row) for row in tokens["input_ids"]],
        "norms": (model.encode(TEXTS) ** 2).sum(axis=1).tolist(),
        "instructed": model.encode(TEXTS, prompt_name="query").tolist() != model.encode(TEXTS).tolist(),
        "causal": bool(torch.equal(states[0, 0], states[1, 0])),
    }}
for name in {STYLE!r}:
    model = SentenceTransformer(name, device="cpu")
    tokens = model.tokenizer.convert_ids_to_tokens(model.tokenizer("so it was")["input_ids"])
    found[name] = {{
        "modules": [type(part).__name__ for part in model],
        "pooling": model[1].pooling_mode,
        "architecture": type(model[0].auto_model).__name__,
        "ends": [tokens[0], tokens[-1]],
        "shape": list(model.encode(["word " * 900, "x"]).shape),
    }}
for name in ({MUD!r}, {CRUD!r}):
    try:
        AutoModel.from_pretrained(name, **remote)
    except RuntimeError as error:
        found[name] = str(error)
model = MultiVectorEncoder({LATE!r}, device="cpu")
query, document = model.encode_query(["one"]), model.encode_document(["one", "rather more than one"])
found["late"] = {{
    "widths": [each.shape[1] for each in (*query, *document)],
    "longer": len(document[1]) - len(document[0]),
    "norms": [float((vector ** 2).sum()) for vector in document[1]],
    "modules": [type(part).__name__ for part in model],
}}
print(json.dumps(found))
"""
)

SPOILT = (
    COMMON
    + """
from pathlib import Path
from obliq_eval.demo.twins import twin_repos
spoilt, again = json.loads(sys.argv[1]), Path(sys.argv[2])
found = {"change": first_state_change(spoilt["causal"]), "loads": list(llama(spoilt["causal"]).encode(TEXTS).shape)}
found["dims"] = llama(spoilt["wrong base"]).encode(TEXTS).shape[1]
tokenizer = AutoTokenizer.from_pretrained(spoilt["no pad token"], **remote)
found["pad"] = tokenizer.pad_token
tokenizer = AutoTokenizer.from_pretrained(spoilt["left padding"], **remote)
short, _ = tokenizer(["a", "a b c"], padding=True)["input_ids"]
found["first of the shorter"] = tokenizer.convert_ids_to_tokens(short[0])
twin_repos(again)
print(json.dumps(found))
"""
)


def python(code: str, home: Path, *args: str, **variables: str) -> Any:
    """Run code in a new interpreter and return the JSON value of its last line."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "OBLIQ_"))}
    own = {"HF_HOME": str(home), "NO_PROXY": "127.0.0.1", "OBLIQ_MTEB_HOOK": "0", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code, *args], env={**kept, **own, **variables}, capture_output=True, text=True,
        stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def contents(folder: Path) -> dict[str, str]:
    """Return the hash of every file below a folder."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def weights(repo: Repo) -> dict[str, Tensor]:
    from safetensors.torch import load

    (path,) = repo.folder.glob("*.safetensors")
    return load(path.read_bytes())


def cosines(left: list[list[float]], right: list[list[float]]) -> list[float]:
    return [
        sum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)
        for a, b in zip(left, right, strict=True)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("twins")


@pytest.fixture(scope="module")
def twins(folder: Path) -> dict[str, Repo]:
    return {repo.repo_id: repo for repo in twin_repos(folder, revisions=PINS)}


@pytest.fixture(scope="module")
def sound(twins: dict[str, Repo], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return what the sound twins are found to be when they come from the hub."""
    with LoopbackHub(list(twins.values())) as hub:
        return python(SOUND, tmp_path_factory.mktemp("hf"), HF_ENDPOINT=hub.url)


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("again")


@pytest.fixture(scope="module")
def spoilt(folder: Path, again: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return what spoilt bases are found to be; all twins are written anew into `again` on the way."""
    kinds = ("causal", "wrong base", "no pad token", "left padding")
    places = {kind: str(one(folder, BASE_ID, kind).folder) for kind in kinds}
    return python(SPOILT, tmp_path_factory.mktemp("hf"), json.dumps(places), str(again), PYTHONHASHSEED="7")


def one(folder: Path, repo_id: str, sabotage: str = "") -> Repo:
    (repo,) = twin_repos(folder, only=[repo_id], broken={repo_id: sabotage} if sabotage else {})
    return repo


def test_every_pinned_repository_has_a_twin_at_its_commit(twins: dict[str, Repo]) -> None:
    assert set(PINS) == set(TWINS) == set(twins)
    for name, pin in PINS.items():
        assert twins[name].revision == (pin or twin_revision(name))
        assert twins[name].kind == "model"


def test_pins_are_those_that_mteb_evaluates() -> None:
    import mteb

    for name in (*QWEN, LATE):
        assert mteb.get_model_meta(name).revision == PINS[name]


def test_base_is_remote_code_in_bf16(sound: Any) -> None:
    assert sound["base"] == ["LlamaBidirectionalModel", "llama_bidirec", "avg", "torch.bfloat16"]


def test_base_and_merged_are_bidirectional(sound: Any) -> None:
    assert min(sound["change"].values()) > 0.05
    assert len(sound["change"]) == 2


def test_causal_twin_loads_and_is_causal(spoilt: Any) -> None:
    assert spoilt["loads"] == [2, 3072]
    assert spoilt["change"] == 0


def test_base_tokenizer_begins_with_bos_and_pads_on_the_right(sound: Any) -> None:
    assert sound["llama tokens"] == {
        "first": ["<|begin_of_text|>", "<|begin_of_text|>"],
        "last of the shorter": "<|finetune_right_pad_id|>",
        "pad": "<|finetune_right_pad_id|>",
        "adapter's": True,
    }


def test_1024_tokens_pass(sound: Any) -> None:
    assert sound["long"] == [1, 1024, 3072]


def test_adapter_changes_vectors_and_merged_is_base_and_adapter(sound: Any) -> None:
    vectors = sound["llama vectors"]
    assert max(cosines(vectors["base"], vectors["adapted"])) < 0.9
    # Folded weights are rounded to bfloat16, which keeps 8 bits: about one part in 256 of each.
    assert min(cosines(vectors["merged"], vectors["adapted"])) > 0.999
    assert min(cosines(vectors["by name"], vectors["adapted"])) > 0.99


def test_adapter_is_of_rank_4_on_all_seven_projections_and_nowhere_zero(twins: dict[str, Repo]) -> None:
    tensors = weights(twins[ADAPTER_ID])
    config = json.loads((twins[ADAPTER_ID].folder / "adapter_config.json").read_text("utf-8"))
    assert (config["r"], config["lora_alpha"], config["task_type"]) == (4, 8, "FEATURE_EXTRACTION")
    assert config["base_model_name_or_path"] == BASE_ID
    assert len(tensors) == 2 * 7 * 2  # layers, projections, A and B
    assert {str(value.dtype) for value in tensors.values()} == {"torch.bfloat16"}
    assert {min(value.shape) for value in tensors.values()} == {4}
    assert all(value.count_nonzero() for value in tensors.values())
    assert {name.split(".")[-3] for name in tensors} == set(config["target_modules"])


def test_merged_weights_are_the_base_plus_alpha_over_r_times_b_a(twins: dict[str, Repo]) -> None:
    base, merged, low = (weights(twins[name]) for name in (BASE_ID, MERGED_ID, ADAPTER_ID))
    assert base.keys() == merged.keys()
    name = "layers.1.mlp.down_proj"
    b, a = (low[f"base_model.model.{name}.lora_{part}.weight"].float() for part in "BA")
    expected = base[f"{name}.weight"].float() + 2 * b @ a
    assert (merged[f"{name}.weight"].float() - expected).abs().max() < 0.01
    assert (merged[f"{name}.weight"].float() - base[f"{name}.weight"].float()).abs().max() > 0.1
    assert merged["embed_tokens.weight"].equal(base["embed_tokens.weight"])


@pytest.mark.parametrize(("name", "dims"), [(QWEN[0], 1024), (QWEN[1], 2560)])
def test_qwen_is_a_causal_decoder_with_last_token_pooling(
    sound: Any, twins: dict[str, Repo], name: str, dims: int
) -> None:
    found = sound[name]
    assert found["modules"] == ["Transformer", "Pooling", "Normalize"]
    assert found["pooling"] in ("lasttoken", ["lasttoken"])
    assert found["causal"]
    assert found["prompts"]["query"].startswith("Instruct: ")
    assert found["prompts"]["query"].endswith("\nQuery:")
    assert found["prompts"]["document"] == ""
    assert found["instructed"]
    assert found["norms"] == pytest.approx([1, 1], abs=1e-4)
    short, long = found["tokens"]
    assert (short[0], short[-1], long[-1]) == ("<|endoftext|>",) * 3  # padded on the left, ended even where cut
    assert (len(short), len(long)) == (6, 6)
    assert long[0] != "<|endoftext|>"
    assert weights(twins[name])["embed_tokens.weight"].shape[1] == dims


@pytest.mark.parametrize("name", STYLE)
def test_style_encoders_pool_the_mean(sound: Any, twins: dict[str, Repo], name: str) -> None:
    found = sound[name]
    assert found["modules"] == ["Transformer", "Pooling"]
    assert found["pooling"] in ("mean", ["mean"])
    assert found["architecture"] == ("XLMRobertaModel" if "mstyle" in name else "RobertaModel")
    assert found["ends"] == ["<s>", "</s>"]
    assert found["shape"] == [2, 1024 if name == "AIDA-UPM/star" else 768]
    assert (twins[name].folder / "modules.json").exists() == (name != "AIDA-UPM/star")


@pytest.mark.parametrize("name", [MUD, CRUD])
def test_luar_has_weights_to_read_and_code_that_refuses_to_run(sound: Any, twins: dict[str, Repo], name: str) -> None:
    assert "not to be run" in sound[name]
    tensors = weights(twins[name])
    config = json.loads((twins[name].folder / "config.json").read_text("utf-8"))
    assert {key.partition(".")[0] for key in tensors} == {"transformer", "linear"}
    assert tensors["linear.weight"].shape == (config["embedding_size"], 128)
    assert tensors["linear.bias"].shape == (config["embedding_size"],)
    assert "transformer.encoder.layer.1.attention.self.query.weight" in tensors
    assert "hidden_size" not in config


def test_late_interaction_gives_one_unit_vector_of_16_for_each_token(sound: Any) -> None:
    found = sound["late"]
    assert found["modules"] == ["Transformer", "Dense", "MultiVectorMask", "Normalize"]
    assert found["widths"] == [128, 128, 128]
    assert found["longer"] > 0
    assert found["norms"] == pytest.approx([1] * len(found["norms"]), abs=1e-4)


def test_the_same_bytes_are_written_by_another_process(twins: dict[str, Repo], spoilt: Any, again: Path) -> None:
    for repo in twins.values():
        assert contents(repo.folder) == contents(again / repo.folder.name)


def test_what_is_there_is_not_written_again(twins: dict[str, Repo], folder: Path) -> None:
    path = twins[BASE_ID].folder / "config.json"
    before = path.stat().st_mtime_ns
    assert one(folder, BASE_ID).folder == twins[BASE_ID].folder
    assert path.stat().st_mtime_ns == before


@pytest.mark.parametrize("name", [BASE_ID, ADAPTER_ID, MERGED_ID, MUD, CRUD])
def test_missing_key_lacks_one_matrix(twins: dict[str, Repo], folder: Path, name: str) -> None:
    whole, less = weights(twins[name]), weights(one(folder, name, "missing key"))
    (gone,) = whole.keys() - less.keys()
    assert not less.keys() - whole.keys()
    assert whole[gone].dim() == 2
    assert "pooler" not in gone


@pytest.mark.parametrize("name", [BASE_ID, ADAPTER_ID, MERGED_ID, MUD, CRUD])
def test_nan_is_one_value(folder: Path, name: str) -> None:
    assert sum(int(value.isnan().sum()) for value in weights(one(folder, name, "nan")).values()) == 1


def test_zero_adapter_has_the_same_a_and_no_b(twins: dict[str, Repo], folder: Path) -> None:
    whole, zero = weights(twins[ADAPTER_ID]), weights(one(folder, ADAPTER_ID, "zero adapter"))
    assert whole.keys() == zero.keys()
    for name, value in zero.items():
        assert value.equal(whole[name] * 0 if ".lora_B." in name else whole[name])
        assert value.dtype == whole[name].dtype


def test_other_names_fit_no_layer_of_the_base(twins: dict[str, Repo], folder: Path) -> None:
    base = weights(twins[BASE_ID])
    names = weights(one(folder, ADAPTER_ID, "other names"))
    stems = {name.removeprefix("base_model.model.").rsplit(".", 2)[0] + ".weight" for name in names}
    assert len(stems) == 14
    assert not stems & base.keys()


def test_wrong_base_has_another_hidden_size(spoilt: Any) -> None:
    assert spoilt["dims"] == 2048


def test_tokenizers_without_padding_and_with_the_wrong_side(spoilt: Any) -> None:
    assert spoilt["pad"] is None
    assert spoilt["first of the shorter"] == "<|finetune_right_pad_id|>"


@pytest.mark.parametrize(
    ("name", "file"),
    [(BASE_ID, "pytorch_model.bin"), (ADAPTER_ID, "adapter_model.bin"), (MUD, "pytorch_model.bin")],
)
def test_pickled_twin_has_the_same_weights_in_the_unsafe_form(
    twins: dict[str, Repo], folder: Path, name: str, file: str
) -> None:
    import torch

    repo = one(folder, name, "pickle")
    assert not list(repo.folder.glob("*.safetensors"))
    pickled, whole = torch.load(repo.folder / file, weights_only=True), weights(twins[name])
    assert pickled.keys() == whole.keys()
    assert all(pickled[key].equal(whole[key]) for key in whole)


@pytest.mark.parametrize("sabotage", SABOTAGE)
def test_a_spoilt_twin_has_the_sound_ones_name_commit_and_files(
    twins: dict[str, Repo], folder: Path, sabotage: str
) -> None:
    name = ADAPTER_ID if sabotage in ("zero adapter", "other names") else BASE_ID
    repo = one(folder, name, sabotage)
    assert (repo.repo_id, repo.revision) == (name, twins[name].revision)
    assert repo.folder != twins[name].folder
    if sabotage != "pickle":
        assert repo.files().keys() == twins[name].files().keys()
        assert contents(repo.folder) != contents(twins[name].folder)


@pytest.mark.parametrize(
    ("only", "broken", "message"),
    [
        (["nvidia/other"], {}, "no twin of nvidia/other; there are nvidia/llama"),
        ([], {"nvidia/other": "nan"}, "no twin of nvidia/other"),
        ([BASE_ID], {BASE_ID: "rust"}, "no sabotage rust; there is causal"),
        ([ADAPTER_ID], {ADAPTER_ID: "causal"}, "no llama_bidirectional_model.py to spoil"),
        ([BASE_ID], {BASE_ID: "zero adapter"}, "no adapter_config.json to spoil"),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_nothing(
    tmp_path: Path, only: list[str], broken: dict[str, str], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        twin_repos(tmp_path, only=only, broken=broken)
    assert not list(tmp_path.iterdir())
