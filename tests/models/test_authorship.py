"""Texts cut into windows and read by LUAR: tiny weights, a tokenizer of one token per letter, the loopback hub."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from obliq_eval.catalogue import resolve
from obliq_eval.errors import UserError
from obliq_models.retrievers import authorship

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import datasets

    from obliq_models.encoders.authorship import LuarEncoder

SPECIAL = ("<s>", "<pad>", "</s>")
HIDDEN, DIMS, POSITIONS = 32, 12, 34
NAME, MUD, CRUD = "tiny/luar", "rrivera1849/LUAR-MUD", "rrivera1849/LUAR-CRUD"
ALPHABET = "abcdefghijklmnopqrstuvwxyz"


def write_checkpoint(folder: Path) -> Path:
    """Write random weights in the published form, with room for 32 tokens, `<s>` and `</s>` included."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
    from transformers import RobertaConfig, RobertaModel

    folder.mkdir()
    letters = Tokenizer(models.BPE())
    letters.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=259, special_tokens=list(SPECIAL), initial_alphabet=alphabet)
    letters.train_from_iterator([], trainer)
    letters.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    letters.enable_truncation(5)  # some checkpoints' tokenizer.json brings these; they must not matter
    letters.enable_padding(length=40)
    letters.save(str(folder / "tokenizer.json"))
    config = RobertaConfig(
        vocab_size=259,
        hidden_size=HIDDEN,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=POSITIONS,
        type_vocab_size=1,
    )
    torch.manual_seed(0)
    whole = torch.nn.Module()
    whole.transformer, whole.linear = RobertaModel(config), torch.nn.Linear(HIDDEN, DIMS)
    weights = {key: value.clone() for key, value in whole.state_dict().items()}
    weights |= {key: torch.randn(value.shape) for key, value in weights.items() if "word_embeddings" in key}
    save_file(weights, folder / "model.safetensors")
    given = {"model_type": "LUAR", "embedding_size": DIMS, "num_attention_heads": 2}
    (folder / "config.json").write_text(json.dumps(given), "utf-8")
    return folder


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("luar") / "tiny")


@pytest.fixture
def changed(checkpoint: Path, tmp_path: Path) -> Callable[..., Path]:
    """Return a function that copies the checkpoint with other weights."""

    def change(**weights: torch.Tensor | None) -> Path:
        folder = tmp_path / "changed"
        shutil.copytree(checkpoint, folder)
        held = {**load_file(checkpoint / "model.safetensors"), **weights}
        save_file({key: value for key, value in held.items() if value is not None}, folder / "model.safetensors")
        return folder

    return change


def encoder(folder: Path, **given: Any) -> LuarEncoder:
    return authorship.load(NAME, "1", path=str(folder), **{"window": 10, "episode": 3, **given}).encoder  # type: ignore[return-value]


def arrivals(luar: LuarEncoder, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that receives every window as it reaches the transformer, spelt out, padding left out."""
    seen: list[str] = []
    texts = luar.network.texts

    def record(ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        rows = [row[kept.bool()].tolist() for row, kept in zip(ids, mask, strict=True)]
        seen.extend("".join(luar.tokenizer.id_to_token(token) for token in row) for row in rows)
        return texts(ids, mask)

    monkeypatch.setattr(luar.network, "texts", record)
    return seen


def test_a_text_is_cut_into_consecutive_windows(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of 10 tokens hold 8 letters between <s> and </s>; an episode holds at most 3 of them.

    26 letters make 8 + 8 + 8 + 2: three windows of 30 tokens are read, 2 letters are not. 9 letters make 8 + 1 (13
    tokens), 8 make one (10), none makes one of 2 tokens. Together 30 + 13 + 10 + 2 = 55.
    """
    luar = encoder(checkpoint)
    seen = arrivals(luar, monkeypatch)
    found = luar.encode([ALPHABET, ALPHABET[:9], ALPHABET[:8], ""], "document")
    assert sorted(seen) == sorted(
        ["<s>abcdefgh</s>"] * 3 + ["<s>ijklmnop</s>", "<s>qrstuvwx</s>", "<s>i</s>", "<s></s>"]
    )
    assert (found.tokens, found.cut, found.lost) == (55, 1, 2)
    assert found.vectors.shape == (4, DIMS)
    assert found.vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(found.vectors, axis=1), 1, atol=1e-6)


@pytest.mark.parametrize(("letters", "windows", "lost"), [(0, 1, 0), (1, 1, 0), (3, 1, 0), (4, 2, 0), (6, 2, 0)])
@pytest.mark.parametrize("window", [5])
def test_the_number_of_windows_up_to_the_episode(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, letters: int, windows: int, lost: int, window: int
) -> None:
    """Windows of 5 tokens hold 3 letters; with an episode of 2, the seventh letter is the first that is lost."""
    luar = encoder(checkpoint, window=window, episode=2)
    seen = arrivals(luar, monkeypatch)
    found = luar.encode([ALPHABET[:letters]], "query")
    assert (len(seen), found.cut, found.lost) == (windows, 0, lost)
    more = luar.encode([ALPHABET[:letters] + ALPHABET], "query")
    assert (more.cut, more.lost) == (1, letters + 26 - 6)


def test_the_vector_of_a_text_is_that_of_its_windows_as_an_authors_texts(checkpoint: Path) -> None:
    luar = encoder(checkpoint, window=7)
    ids = torch.tensor([[[0, 3, 4, 5, 6, 7, 2], [0, 8, 9, 2, 1, 1, 1]]])
    spelt = "".join(luar.tokenizer.id_to_token(token) for token in (3, 4, 5, 6, 7, 8, 9))
    with torch.inference_mode():
        by_hand = luar.network(ids, (ids != 1).long())[0]
    vector = luar.encode([spelt], "document").vectors[0]
    assert np.allclose(vector, torch.nn.functional.normalize(by_hand, dim=0), atol=1e-5)


def test_one_window_gives_what_sentence_transformers_computes(checkpoint: Path, tmp_path: Path) -> None:
    """A single window passes the attention unchanged: mean pooling, then a linear layer, as the ports have it."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Dense, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling
    from transformers import PreTrainedTokenizerFast, RobertaConfig, RobertaModel

    weights = load_file(checkpoint / "model.safetensors")
    config = encoder(checkpoint).network.transformer.config
    plain = RobertaModel(RobertaConfig(**config.to_dict()))
    plain.load_state_dict({k.removeprefix("transformer."): v for k, v in weights.items() if k[0] == "t"})
    plain.save_pretrained(tmp_path)
    words = PreTrainedTokenizerFast(tokenizer_file=str(checkpoint / "tokenizer.json"), pad_token=SPECIAL[1])
    words.save_pretrained(tmp_path)
    dense = Dense(HIDDEN, DIMS, activation_function=torch.nn.Identity())
    dense.linear.load_state_dict({"weight": weights["linear.weight"], "bias": weights["linear.bias"]})
    port = SentenceTransformer(modules=[Transformer(str(tmp_path)), Pooling(HIDDEN, "mean"), dense], device="cpu")
    port.max_seq_length = 32
    texts = [ALPHABET, "the cat", "", "a" * 80]
    ours = encoder(checkpoint, window=32, episode=1).encode(texts, "document")
    assert np.allclose(ours.vectors, port.encode(texts, normalize_embeddings=True), atol=1e-5)
    assert (ours.cut, ours.lost) == (1, 50)  # 80 letters, of which 32 - 2 are read


words = st.text("abc xyz.", max_size=70)


@settings(max_examples=25, deadline=None)
@given(st.lists(words, min_size=1, max_size=9), st.integers(1, 60))
def test_alone_and_batched_are_the_same(checkpoint: Path, texts: list[str], budget: int) -> None:
    luar = _kept(checkpoint)
    luar.batch_tokens = budget
    together = luar.encode(texts, "document")
    alone = [luar.encode([text], "document") for text in texts]
    assert np.allclose(together.vectors, np.concatenate([one.vectors for one in alone]), atol=1e-5)
    for count in ("tokens", "cut", "lost"):
        assert getattr(together, count) == sum(getattr(one, count) for one in alone)


_made: dict[Path, LuarEncoder] = {}


def _kept(folder: Path) -> LuarEncoder:
    return _made.setdefault(folder, encoder(folder, window=12))


def test_every_setting_that_changes_a_vector_is_in_the_key(checkpoint: Path) -> None:
    plain = encoder(checkpoint)
    vector = plain.encode([ALPHABET], "document").vectors
    for other in ({"window": 9}, {"episode": 2}, {"dtype": "bfloat16"}):
        made = encoder(checkpoint, **other)
        assert not np.allclose(made.encode([ALPHABET], "document").vectors, vector, atol=1e-6)
        assert made.key("document") != plain.key("document")
    assert encoder(checkpoint, batch_tokens=7).key("document") == plain.key("document")
    assert plain.key("query") == {
        "model": NAME,
        "revision": "1",
        "role": "query",
        "instruction": "",
        "window": 10,
        "episode": 3,
        "dtype": "float32",
        "normalize": True,
    }


def test_bfloat16_is_near(checkpoint: Path) -> None:
    texts = [ALPHABET, "the cat sat", "on a mat"]
    exact, rough = (
        encoder(checkpoint, dtype=dtype).encode(texts, "query").vectors for dtype in ("float32", "bfloat16")
    )
    assert np.einsum("ij,ij->i", exact, rough).min() >= 0.999


def test_an_instruction_is_read_before_the_text(checkpoint: Path) -> None:
    luar = encoder(checkpoint)
    told = luar.encode(["sat"], "query", instruction="the cat ").vectors
    assert np.allclose(told, luar.encode(["the cat sat"], "query").vectors, atol=1e-6)


def test_the_retriever_ranks_by_cosine_and_counts_what_was_cut(
    checkpoint: Path, table: Callable[..., datasets.Dataset], caplog: pytest.LogCaptureFixture
) -> None:
    documents = {"long": ALPHABET * 2, "cat": "the cat sat", "ships": "old ships sailed"}
    retriever = authorship.load(NAME, "1", path=str(checkpoint), window=10, episode=3)
    with caplog.at_level(logging.WARNING):
        retriever.index(table(documents))
        found = retriever.search(table({"q": "the cat sat"}), top_k=3)["q"]
    vectors = encoder(checkpoint).encode(list(documents.values()), "document").vectors
    expected = dict(zip(documents, (vectors @ vectors[1]).tolist(), strict=True))
    assert found == pytest.approx(expected, abs=1e-5)
    assert next(iter(found)) == "cat"
    assert retriever.counts["truncated document texts"] == 1
    assert retriever.counts["lost document tokens"] == 52 - 24


def test_wrong_settings_are_named_together(checkpoint: Path) -> None:
    """34 positions from the padding's id on leave 32; two of a window are special."""
    with pytest.raises(UserError) as told:
        encoder(checkpoint, window=33, episode=0)
    assert str(told.value).splitlines() == [
        f"{NAME}: 2 problems",
        "  - window is 33, but must be from 3 to 32 tokens",
        "  - episode is 0, but must be at least 1 window",
    ]
    with pytest.raises(UserError, match="window is 2, but must be from 3 to 32 tokens"):
        encoder(checkpoint, window=2)
    with pytest.raises(UserError, match=r'dtype is \'bfloat\', not one of .*did you mean "bfloat16"'):
        encoder(checkpoint, dtype="bfloat")


@pytest.mark.parametrize(
    ("key", "weight", "told"),
    [
        ("linear.bias", None, r"the file lacks 1 weight \(linear\.bias\)"),
        ("linear.bias", torch.full((DIMS,), float("nan")), r"NaN or infinity is in 1 weight \(linear\.bias\)"),
        ("linear.bias", torch.zeros(5), r"of another shape .*: 1 weight \(linear\.bias is \[5\], not \[12\]\)"),
        ("head.weight", torch.zeros(5), r"the file holds what the architecture does not: 1 weight \(head\.weight\)"),
    ],
    ids=["missing", "nan", "shape", "unexpected"],
)
def test_a_checkpoint_with_one_wrong_weight_is_refused(
    changed: Callable[..., Path], key: str, weight: torch.Tensor | None, told: str
) -> None:
    with pytest.raises(UserError, match=rf"^{NAME} in \S+ holds no weights of LUAR: {told}$"):
        encoder(changed(**{key: weight}))


def test_incomplete_folders_are_refused(changed: Callable[..., Path]) -> None:
    folder = changed()
    (folder / "tokenizer.json").unlink()
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"(?s)2 problems.*it has no tokenizer\.json.*it has no model\.safetensors"):
        encoder(folder)


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "model.safetensors"])
def test_damaged_files_are_refused_in_one_sentence(changed: Callable[..., Path], file: str) -> None:
    folder = changed()
    (folder / file).write_bytes(b"{not json")
    with pytest.raises(UserError, match=rf"^{NAME}: cannot (read the weights in|build the model of) "):
        encoder(folder)


def test_a_pickle_is_read_only_when_allowed(changed: Callable[..., Path], checkpoint: Path) -> None:
    folder = changed()
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(
        UserError, match=r"it has no model\.safetensors; name a revision that has it, or set allow_pickle"
    ):
        encoder(folder)
    allowed = encoder(folder, allow_pickle=True).encode([ALPHABET], "query").vectors
    assert (allowed == encoder(checkpoint).encode([ALPHABET], "query").vectors).all()


def test_a_pickle_that_runs_code_is_refused_even_when_pickles_are_allowed(
    changed: Callable[..., Path], tmp_path: Path
) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return (open, (str(tmp_path / "sprung"), "w"))

    folder = changed()
    torch.save({"linear.bias": Trap()}, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"cannot read the weights in .*pytorch_model\.bin"):
        encoder(folder, allow_pickle=True)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("alias", ["luar", "luar-crud"])
def test_entries_say_what_is_presumed_and_what_is_at_risk(alias: str) -> None:
    entry = resolve(alias)
    assert entry.name == {"luar": MUD, "luar-crud": CRUD}[alias]
    assert (entry.dims, entry.settings["window"], entry.settings["episode"]) == (512, 512, 1)
    assert "guess" in entry.presumed
    assert "window" in entry.presumed
    assert entry.risk
    assert entry.licence == "apache-2.0"


ASK = """
import json, sys
from obliq_eval.catalogue import Loader, resolve
from obliq_eval.errors import UserError
for alias, given in json.loads(sys.argv[1]):
    entry = resolve(alias)
    prefixes = {"query_length": entry.query_length} if entry.query_length else {}
    settings = {"revision": entry.revision, **entry.settings, **prefixes, **given}
    try:
        encoder = Loader(entry.loader)(entry.name, **settings).encoder
    except UserError as error:
        print(json.dumps(str(error)))
    else:
        vectors = encoder.encode(["a text by somebody", "another"], "query").vectors
        print(json.dumps([encoder.revision, vectors.tolist()]))
"""
NAN, PICKLED = "1" * 40, "2" * 40
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "luar": ("luar", {}),
    "luar-crud": ("luar-crud", {}),
    "episode": ("luar", {"window": 5, "episode": 4}),
    "nan": ("luar", {"revision": NAN}),
    "pickle": ("luar", {"revision": PICKLED}),
    "styles": ("style-embedding", {}),
    "star": ("star", {}),
}


@pytest.fixture(scope="module")
def hub_answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Ask a loopback hub for the twins, from one process; its requests are under `requests`."""
    from obliq_eval.demo.hub import LoopbackHub
    from obliq_eval.demo.twins import twin_repos
    from obliq_models.pins import PINS

    folder, style, star = tmp_path_factory.mktemp("twins"), "AnnaWegmann/Style-Embedding", "AIDA-UPM/star"
    spoilt = [
        repo
        for how, revision in (("nan", NAN), ("pickle", PICKLED))
        for repo in twin_repos(folder, only=(MUD,), broken={MUD: how}, revisions={MUD: revision})
    ]
    sound = twin_repos(folder, only=(MUD, CRUD, style, star), revisions=PINS)
    with LoopbackHub([*spoilt, *sound]) as hub:
        variables = {
            **os.environ,
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(folder / "hf"),
            "OBLIQ_HOME": str(folder / "o"),
        }
        command = [sys.executable, "-c", ASK, json.dumps(list(CASES.values()))]
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        answers = dict(zip(CASES, map(json.loads, done.stdout.splitlines()), strict=True))
        commits = {repo.repo_id: repo.revision for repo in sound}
        return {**answers, "requests": [path for _, path in hub.requests], "commits": commits, "folder": folder}


def test_the_entries_load_their_twins_from_the_hub(hub_answers: dict[str, Any]) -> None:
    """Vectors are those of the same files in a folder, at the commit that the table or `main` means."""
    for alias, name in (("luar", MUD), ("luar-crud", CRUD)):
        revision, vectors = hub_answers[alias]
        assert revision == hub_answers["commits"][name]
        local = authorship.load(name, path=str(hub_answers["folder"] / name.replace("/", "--")))
        expected = local.encode(["a text by somebody", "another"], "query")
        assert expected.shape == (2, 512)
        assert np.allclose(vectors, expected, atol=1e-5)
    assert not np.allclose(hub_answers["luar"][1], hub_answers["luar-crud"][1], atol=1e-2)
    assert not np.allclose(hub_answers["luar"][1], hub_answers["episode"][1], atol=1e-2)


def test_a_spoilt_twin_is_refused_and_its_pickle_not_fetched(hub_answers: dict[str, Any]) -> None:
    assert "NaN or infinity is in 1 weight" in hub_answers["nan"]
    assert f"{MUD}@{PICKLED} is not a complete model: it has no model.safetensors" in hub_answers["pickle"]
    assert not [path for path in hub_answers["requests"] if path.endswith((".py", ".bin"))]


def test_star_is_read_through_its_pooler(hub_answers: dict[str, Any]) -> None:
    """Vectors are the `pooler_output` of transformers at unit length."""
    from transformers import AutoModel, AutoTokenizer

    folder = hub_answers["folder"] / "AIDA-UPM--star"
    words = AutoTokenizer.from_pretrained(folder)(["a text by somebody", "another"], padding=True, return_tensors="pt")
    with torch.inference_mode():
        pooled = AutoModel.from_pretrained(folder).eval()(**words).pooler_output
    revision, vectors = hub_answers["star"]
    assert revision == hub_answers["commits"]["AIDA-UPM/star"]
    assert np.allclose(vectors, torch.nn.functional.normalize(pooled, dim=1), atol=1e-5)
    assert np.shape(hub_answers["styles"][1]) == (2, 768)


def test_a_model_without_its_pooler_is_refused(hub_answers: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "headless"
    shutil.copytree(hub_answers["folder"] / "AIDA-UPM--star", folder)
    held = load_file(folder / "model.safetensors")
    del held["pooler.dense.bias"]
    save_file(held, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"is not a complete model: the files lack 1 weight \(pooler\.dense\.bias\)$"):
        authorship.load_pooled("some/star", "1", path=str(folder))
