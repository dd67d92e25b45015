"""The encoder over sentence-transformers models: equal to what these compute themselves, whatever the batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from obliq_eval.errors import UserError
from obliq_models.encoders import sentence
from obliq_models.encoders.base import ROLES
from obliq_models.encoders.sentence import SentenceEncoder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sentence_transformers import SentenceTransformer

    Tiny = Callable[..., Path]

SHORT = "the cat sat"
LONG = "the quiet old harbour " * 8
MIXED = [SHORT, LONG, "dogs", LONG[:40], "", "a mat", "naïve — ü\n\nships", LONG[:70], SHORT]


def build(folder: Path, pooling: str = "mean", **given: Any) -> SentenceTransformer:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    transformer = Transformer(str(folder))
    pool: Any = Pooling(transformer.get_embedding_dimension(), pooling_mode=pooling, **given)
    return SentenceTransformer(modules=[transformer, pool], device="cpu")


def cosines(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the cosine of each pair of rows; 1 where both are zero."""
    norms = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    same = 1.0 * (left == right).all(axis=1)
    return np.asarray(np.divide(np.einsum("ij,ij->i", left, right), norms, out=same, where=norms > 0))


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("padding", ["left", "right"])
@pytest.mark.parametrize("pooling", ["mean", "cls", "lasttoken"])
@pytest.mark.parametrize("include_prompt", [True, False])
def test_vectors_are_those_of_sentence_transformers(
    tiny_model: Tiny, causal: bool, padding: str, pooling: str, include_prompt: bool
) -> None:
    model = build(tiny_model(causal=causal, padding=padding), pooling, include_prompt=include_prompt)
    model.prompts = {"query": "search for: ", "document": ""}
    encoder = SentenceEncoder(model, "tiny", None, batch_tokens=96)
    assert encoder.fast
    for role, own in (("query", model.encode_query), ("document", model.encode_document)):
        for text, got in zip(MIXED, encoder.encode(MIXED, role).vectors, strict=True):  # type: ignore[arg-type]
            expected = own([text], normalize_embeddings=True)
            assert cosines(got[None], expected).min() >= 0.9999
    raw = SentenceEncoder(model, "tiny", None, normalize=False).encode(MIXED, "document").vectors
    assert np.allclose(raw, np.concatenate([model.encode_document([text]) for text in MIXED]), atol=1e-5)


def test_the_slow_way_gives_the_same(tiny_model: Tiny) -> None:
    encoder = SentenceEncoder(build(tiny_model()), "tiny", None, query_prefix="query: ", query_length=9)
    fast = encoder.encode(MIXED, "query", "find ")
    encoder.fast = False
    slow = encoder.encode(MIXED, "query", "find ")
    assert cosines(fast.vectors, slow.vectors).min() >= 0.9999
    assert (fast.tokens, fast.cut, fast.lost) == (slow.tokens, slow.cut, slow.lost)


def test_slices_and_batches_do_not_show(tiny_model: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = SentenceEncoder(build(tiny_model()), "tiny", None)
    texts = [f"{LONG[: 7 * (row % 13)]} {row}" for row in range(60)]
    whole = encoder.encode(texts, "document")
    monkeypatch.setattr(sentence, "SLICE", 7)
    several: list[dict[str, Any]] = [{"batch_tokens": 1}, {"batch_tokens": 64}, {"batch_size": 2}]
    for settings in several:
        other = SentenceEncoder(encoder.model, "tiny", None, **settings).encode(texts, "document")
        assert cosines(whole.vectors, other.vectors).min() >= 0.9999
        assert (other.tokens, other.cut, other.lost) == (whole.tokens, whole.cut, whole.lost)


def test_batches_keep_to_tokens_and_texts(tiny_model: Tiny) -> None:
    model = build(tiny_model())
    shapes: list[tuple[int, int]] = []
    encoder = SentenceEncoder(model, "tiny", None, batch_tokens=40, batch_size=3)
    model[0].register_forward_pre_hook(lambda _, args: shapes.append(tuple(args[0]["input_ids"].shape)))
    told: list[int] = []
    encoder.watch = told.append
    encoder.encode(MIXED, "document")
    assert told == [rows for rows, _ in shapes]  # how far it is, batch by batch
    assert sum(rows for rows, _ in shapes) == len(MIXED)
    assert all(rows == 1 or (rows <= 3 and rows * width <= 40) for rows, width in shapes)


def test_each_role_has_its_length_and_what_is_lost_is_counted(tiny_model: Tiny) -> None:
    """A text beyond the length does not matter: the vector is that of its first tokens."""
    model = build(tiny_model())
    encoder = SentenceEncoder(model, "tiny", None, query_length=4, document_length=8)
    tokens = model.tokenizer(LONG)["input_ids"]
    for role, length in (("query", 4), ("document", 8)):
        assert encoder.length(role) == length  # type: ignore[arg-type]
        found = encoder.encode([LONG, "a"], role)  # type: ignore[arg-type]
        first = model.tokenizer.decode(tokens[1:length])  # the first token is <s>, which the tokenizer adds
        assert np.allclose(found.vectors[0], model.encode([first], normalize_embeddings=True)[0], atol=1e-5)
        assert (found.tokens, found.cut, found.lost) == (length + 2, 1, len(tokens) - length)
    assert model.max_seq_length == 64
    with pytest.raises(UserError, match="query_length is 65, but the model has positions for 64"):
        SentenceEncoder(model, "tiny", None, query_length=65)


def test_positions_of_roberta_begin_behind_the_padding(tmp_path: Path, tiny_model: Tiny) -> None:
    """A table of 66 positions whose first two are kept for padding holds 64 tokens."""
    from transformers import AutoTokenizer, RobertaConfig, RobertaModel

    tokenizer = AutoTokenizer.from_pretrained(tiny_model())
    config = RobertaConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=66, pad_token_id=1, type_vocab_size=1,
    )  # fmt: skip
    RobertaModel(config).save_pretrained(tmp_path / "roberta")
    tokenizer.save_pretrained(tmp_path / "roberta")
    model = build(tmp_path / "roberta")
    assert SentenceEncoder(model, "r", None, query_length=64).encode([LONG * 3], "query").cut == 1
    with pytest.raises(UserError, match="query_length is 65, but the model has positions for 64"):
        SentenceEncoder(model, "r", None, query_length=65)


def test_a_models_own_lengths_hold(tiny_model: Tiny) -> None:
    """sentence-transformers keeps lengths of its own for each role; what is set here comes before them."""
    model = build(tiny_model())
    model[0].query_length = 5  # type: ignore[assignment]
    encoder = SentenceEncoder(model, "tiny", None)
    assert (encoder.length("query"), encoder.length("document")) == (5, 64)
    assert encoder.encode([LONG], "query").tokens == 5
    encoder = SentenceEncoder(model, "tiny", None, query_length=7)
    assert (encoder.length("query"), encoder.encode([LONG], "query").tokens) == (7, 7)
    encoder.fast = False
    assert np.allclose(
        encoder.encode([LONG], "query").vectors,
        SentenceEncoder(model, "tiny", None, document_length=7).encode([LONG], "document").vectors,
        atol=1e-5,
    )
    assert model[0].query_length == 5


def test_prompts_of_the_model_hold_where_nothing_is_set(tiny_model: Tiny) -> None:
    model = build(tiny_model())
    model.prompts = {"query": "q: ", "passage": "p: ", "style": "Style. "}
    model.default_prompt_name = "style"
    encoder = SentenceEncoder(model, "tiny", None)
    assert (encoder.prompt("query"), encoder.prompt("document")) == ("q: ", "p: ")
    assert SentenceEncoder(model, "tiny", None, query_prefix="").prompt("query") == ""
    both = SentenceEncoder(model, "tiny", None, query_prefix="x: ", query_prompt_name="style")
    assert both.prompt("query") == "x: Style. "
    with pytest.raises(UserError, match="no prompt 'stile'; did you mean \"style\""):
        SentenceEncoder(model, "tiny", None, query_prompt_name="stile")


def test_everything_that_can_change_a_vector_is_in_the_key(tiny_model: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})  # nothing is computed here
    folder = tiny_model()
    models = [build(folder), build(folder, "cls"), build(folder, include_prompt=False)]
    half = build(folder).to(torch.bfloat16)
    variants: list[dict[str, Any]] = [
        {}, {"query_prefix": "q: "}, {"query_length": 9}, {"normalize": False}, {"autocast": True},
    ]  # fmt: skip
    keys = [SentenceEncoder(models[0], "tiny", "1", **settings).key("query") for settings in variants]
    keys += [SentenceEncoder(model, "tiny", "1").key("query") for model in (*models[1:], half)]
    keys += [SentenceEncoder(models[0], "tiny", "2").key("query"), SentenceEncoder(models[0], "t", "1").key("query")]
    keys += [SentenceEncoder(models[0], "tiny", "1").key("document")]
    keys += [SentenceEncoder(models[0], "tiny", "1").key("query", "find ")]
    assert all(keys.count(key) == 1 for key in keys)
    same = SentenceEncoder(build(folder), "tiny", "1", batch_tokens=9, batch_size=3, document_length=9)
    assert same.key("query") == keys[0]
    assert keys[0] == {
        "model": "tiny", "revision": "1", "role": "query", "instruction": "", "prefix": "", "length": 64,
        "pooling": ["mean"], "pools_prompt": True, "modules": ["Transformer", "Pooling"], "dtype": "float32",
        "autocast": False, "attention": "sdpa", "truncate_dim": None, "normalize": True,
    }  # fmt: skip


def test_autocast_is_close_and_refused_where_it_cannot_be(tiny_model: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny_model()
    model = build(folder)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True, "avx512_bf16": False})
    with pytest.raises(UserError, match="computes in bfloat16, for which this cpu has no instructions"):
        SentenceEncoder(model, "tiny", None, autocast=True)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    seen: list[torch.dtype] = []
    encoder = SentenceEncoder(model, "tiny", None, autocast=True)
    model[0].model.layers[0].mlp.register_forward_hook(lambda *found: seen.append(found[-1].dtype))  # type: ignore[union-attr,index]
    found = encoder.encode(MIXED, "document").vectors
    assert set(seen) == {torch.bfloat16}
    assert found.dtype == np.float32
    assert cosines(found, SentenceEncoder(model, "tiny", None).encode(MIXED, "document").vectors).min() >= 0.999
    with pytest.raises(UserError, match="autocast is for float32 weights, and these are bfloat16"):
        SentenceEncoder(build(folder).to(torch.bfloat16), "tiny", None, autocast=True)


@pytest.mark.parametrize("setting", ["batch_tokens", "batch_size"])
def test_an_empty_batch_is_refused(tiny_model: Tiny, setting: str) -> None:
    settings: dict[str, Any] = {setting: 0}
    with pytest.raises(UserError, match=f"{setting} is 0; a batch holds at least one"):
        SentenceEncoder(build(tiny_model()), "tiny", None, **settings)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("padding", ["left", "right"])
def test_a_sound_model_passes_the_check(tiny_model: Tiny, padding: str, dtype: torch.dtype) -> None:
    SentenceEncoder(build(tiny_model(padding=padding)).to(dtype), "tiny", None).check()


@pytest.mark.parametrize("fast", [True, False])
def test_a_network_that_reads_its_padding_fails_the_check(tiny_model: Tiny, fast: bool) -> None:
    model = build(tiny_model())
    encoder = SentenceEncoder(model, "tiny", None)
    encoder.fast = fast

    def blind(_: Any, args: tuple[dict[str, torch.Tensor]]) -> None:
        args[0]["attention_mask"] = torch.ones_like(args[0]["attention_mask"])

    model[0].register_forward_pre_hook(blind)
    with pytest.raises(UserError, match="tiny: a query alone and the same beside a longer one give vectors of cosine"):
        encoder.check()


def word_vectors(folder: Path) -> Any:
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer

    torch.manual_seed(0)
    return StaticEmbedding(Tokenizer.from_file(str(folder / "tokenizer.json")), embedding_dim=4)


def test_a_model_of_word_vectors_has_no_length(tiny_model: Tiny) -> None:
    """Without special tokens, the vector of a text is the mean of the vectors of its tokens."""
    from sentence_transformers import SentenceTransformer

    words = word_vectors(tiny_model())
    encoder = SentenceEncoder(SentenceTransformer(modules=[words], device="cpu"), "words", None, normalize=False)
    assert (encoder.fast, encoder.length("query")) == (False, None)
    ids = words.tokenizer.encode(LONG, add_special_tokens=False).ids
    found = encoder.encode([LONG], "document")
    mean = words.embedding.weight[torch.tensor(ids)].mean(dim=0)
    assert np.allclose(found.vectors[0], mean.detach().numpy(), atol=1e-6)
    assert (found.cut, found.lost) == (0, 0)
    encoder.check()


def test_a_router_takes_the_way_of_the_role(tiny_model: Tiny) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Router

    first, second = word_vectors(tiny_model()), word_vectors(tiny_model())
    torch.nn.init.normal_(second.embedding.weight)
    model = SentenceTransformer(modules=[Router.for_query_document([first], [second])], device="cpu")
    encoder = SentenceEncoder(model, "router", None)
    assert not encoder.fast
    for role, own in (("query", model.encode_query), ("document", model.encode_document)):
        expected = own([SHORT], normalize_embeddings=True)
        assert np.allclose(encoder.encode([SHORT], role).vectors, expected, atol=1e-6)  # type: ignore[arg-type]
    query, document = (encoder.encode([SHORT], role).vectors for role in ROLES)
    assert not np.allclose(query, document, atol=1e-2)


def test_a_text_without_tokens_has_the_zero_vector(tiny_model: Tiny) -> None:
    model = build(tiny_model())
    from tokenizers import processors

    backend = model.tokenizer.backend_tokenizer
    backend.post_processor = processors.Sequence([])  # no <s> any more
    encoder = SentenceEncoder(model, "tiny", None)
    assert encoder.fast
    found = encoder.encode(["", SHORT], "document")
    assert not found.vectors[0].any()
    assert np.allclose(found.vectors[1], encoder.encode([SHORT], "document").vectors[0], atol=1e-6)


def test_weights_without_a_revision_are_known_by_their_content(tiny_model: Tiny) -> None:
    first, same = (SentenceEncoder(build(tiny_model()), "tiny", None) for _ in range(2))
    first.encode(MIXED, "query")  # leaves the tokenizer cutting at another length
    other = SentenceEncoder(build(tiny_model(seed=1, name="other")), "tiny", None)
    again = SentenceEncoder(first.model, "tiny", None)
    assert first.revision == same.revision == again.revision != other.revision


def test_another_dimension_than_declared_is_refused_and_a_shorter_one_is_a_setting(tiny_model: Tiny) -> None:
    model = build(tiny_model())
    model.truncate_dim = 8
    encoder = SentenceEncoder(model, "tiny", None)
    assert encoder.dims == 8
    expected = model.encode([SHORT], normalize_embeddings=True)
    assert np.allclose(encoder.encode([SHORT], "query").vectors, expected, atol=1e-6)
    model.truncate_dim = None
    with pytest.raises(UserError, match="vectors of 32 dimensions, but declares 8"):
        encoder.encode([SHORT], "query")
