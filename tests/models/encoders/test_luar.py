"""LUAR's network against the same formulas written out slowly, and what it refuses to take as weights."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import RobertaConfig, RobertaModel

from obliq_eval.errors import UserError
from obliq_models.encoders.luar import DISTILROBERTA, Luar, build, fill

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

PAD, HIDDEN, HEADS, LAYERS, DIMS, EPS = 1, 8, 2, 2, 5, 1e-5
SHAPE: dict[str, Any] = {
    "vocab_size": 20,
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 12,
    "max_position_embeddings": 16,
    "type_vocab_size": 1,
    "layer_norm_eps": EPS,
    "pad_token_id": PAD,
}
ONE, TWO, THREE = [0, 5, 6, 2], [0, 7, 2], [0, 8, 9, 10, 11, 2]


def random_weights(seed: int = 0) -> dict[str, torch.Tensor]:
    """Return weights as a checkpoint has them, the pooler among them, with which texts become really different."""
    noise = torch.Generator().manual_seed(seed)
    model = torch.nn.Module()
    model.transformer, model.linear = RobertaModel(RobertaConfig(**SHAPE)), torch.nn.Linear(HIDDEN, DIMS)
    drawn = {key: torch.randn(value.shape, generator=noise) for key, value in model.state_dict().items()}
    return {
        key: value if value.ndim == 2 else value / 10 + 3 * key.endswith("LayerNorm.weight")
        for key, value in drawn.items()
    }


@pytest.fixture(scope="module")
def weights() -> dict[str, torch.Tensor]:
    return random_weights()


@pytest.fixture(scope="module")
def network(weights: dict[str, torch.Tensor]) -> Luar:
    made = build({**SHAPE, "embedding_size": DIMS}, weights)
    fill(made, weights, "here")
    return made.eval()


def softmax(row: list[float]) -> list[float]:
    most = max(row)
    parts = [math.exp(value - most) for value in row]
    return [part / sum(parts) for part in parts]


def attended(queries: Array, keys: Array, values: Array) -> Array:
    """softmax(q · k / √d) v, one query at a time."""
    rows = []
    for query in queries:
        shares = softmax([sum(a * b for a, b in zip(query, key, strict=True)) / math.sqrt(len(query)) for key in keys])
        rows.append(sum(share * value for share, value in zip(shares, values, strict=True)))
    return np.array(rows)


def normed(states: Array, weights: dict[str, Array], name: str) -> Array:
    rows = [(row - row.mean()) / math.sqrt(row.var() + EPS) for row in states]
    return np.array(rows) * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def mapped(states: Array, weights: dict[str, Array], name: str) -> Array:
    return states @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def slow_text(ids: list[int], weights: dict[str, Array]) -> Array:
    """Return the mean last state of one text, nothing padded: RoBERTa after its papers' formulas."""
    inner = "transformer.embeddings"
    states = np.array([weights[f"{inner}.word_embeddings.weight"][i] for i in ids])
    states = states + weights[f"{inner}.position_embeddings.weight"][PAD + 1 : PAD + 1 + len(ids)]
    states = normed(states + weights[f"{inner}.token_type_embeddings.weight"][0], weights, f"{inner}.LayerNorm")
    for layer in (f"transformer.encoder.layer.{n}" for n in range(LAYERS)):
        q, k, v = (mapped(states, weights, f"{layer}.attention.self.{part}") for part in ("query", "key", "value"))
        heads = [slice(h * HIDDEN // HEADS, (h + 1) * HIDDEN // HEADS) for h in range(HEADS)]
        joined = np.concatenate([attended(q[:, h], k[:, h], v[:, h]) for h in heads], axis=1)
        out = f"{layer}.attention.output"
        states = normed(states + mapped(joined, weights, f"{out}.dense"), weights, f"{out}.LayerNorm")
        wide = mapped(states, weights, f"{layer}.intermediate.dense")
        wide = np.vectorize(lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2)(wide)
        states = normed(states + mapped(wide, weights, f"{layer}.output.dense"), weights, f"{layer}.output.LayerNorm")
    mean: Array = sum(states) / len(ids)
    return mean


def slow_author(texts: list[list[int]], weights: dict[str, torch.Tensor]) -> Array:
    """Return the vector of one author."""
    plain = {key: value.double().numpy() for key, value in weights.items()}
    means = np.array([slow_text(ids, plain) for ids in texts])
    joined = attended(means, means, means)
    most = np.array([max(joined[:, column]) for column in range(HIDDEN)])
    return mapped(most, plain, "linear")


def padded(authors: list[list[list[int]]], extra: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the ids and the mask of authors, all as wide as the widest and `extra` wider."""
    texts = max(map(len, authors)) + extra
    tokens = max(len(ids) for author in authors for ids in author) + extra
    shape = (len(authors), texts, tokens)
    found, mask = torch.full(shape, PAD), torch.zeros(shape, dtype=torch.long)
    for row, author in enumerate(authors):
        for column, ids in enumerate(author):
            found[row, column, : len(ids)], mask[row, column, : len(ids)] = torch.tensor(ids), 1
    return found, mask


def run(network: Luar, authors: list[list[list[int]]], extra: int = 0) -> Array:
    with torch.inference_mode():
        return np.asarray(network(*padded(authors, extra)), np.float64)


AUTHORS = [[ONE], [ONE, TWO, THREE], [THREE, THREE]]


def test_the_network_computes_the_formulas(network: Luar, weights: dict[str, torch.Tensor]) -> None:
    for vector, author in zip(run(network, AUTHORS), AUTHORS, strict=True):
        assert np.allclose(vector, slow_author(author, weights), atol=1e-4)


def test_the_join_of_two_texts_by_hand() -> None:
    """Means (0, 2) and (2, 0): products over √2 are 4/√2 within and 0 across, so the other's share is 1/(1 + e^(4/√2)).

    Each text keeps 2 - 2 · share in its own entry, which is more than it gets in the other; so is the maximum of both.
    """
    network = Luar(RobertaConfig(**{**SHAPE, "hidden_size": 2, "num_attention_heads": 1}), 2)
    with torch.no_grad():
        network.linear.weight.copy_(torch.tensor([[1.0, 0.0], [1.0, 1.0]]))
        network.linear.bias.copy_(torch.tensor([0.0, 10.0]))
    most = 2 - 2 / (1 + math.exp(4 / math.sqrt(2)))
    found = network.authors(torch.tensor([[[0.0, 2.0], [2.0, 0.0]]]), torch.ones(1, 2, dtype=torch.bool))
    assert found.tolist()[0] == pytest.approx([most, 2 * most + 10], abs=1e-5)


def test_a_single_text_passes_through_the_join_unchanged(network: Luar) -> None:
    with torch.inference_mode():
        ids, mask = padded([[ONE], [THREE]])
        direct = network.linear(network.texts(ids[:, 0], mask[:, 0]))
        assert torch.allclose(network(ids, mask), direct, atol=1e-5)


def test_several_texts_are_not_just_averaged(network: Luar) -> None:
    together, first, second = run(network, [[ONE, TWO], [ONE], [TWO]])
    assert np.abs(together - (first + second) / 2).max() > 0.1
    assert np.allclose(together, run(network, [[TWO, ONE]])[0], atol=1e-4)  # their order plays no part


text = st.lists(st.integers(3, 19), min_size=1, max_size=10)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(text, min_size=1, max_size=4), min_size=1, max_size=4), st.integers(0, 3))
def test_padding_and_neighbours_change_nothing(authors: list[list[list[int]]], extra: int) -> None:
    network = build({**SHAPE, "embedding_size": DIMS}, {}).eval()
    fill(network, random_weights(1), "here")
    alone = np.concatenate([run(network, [author]) for author in authors])
    assert np.allclose(run(network, authors, extra), alone, atol=1e-4)


def test_the_pooler_and_old_buffers_are_let_pass(network: Luar, weights: dict[str, torch.Tensor]) -> None:
    old = {**weights, "transformer.embeddings.position_ids": torch.arange(16)[None]}
    again = build({**SHAPE, "embedding_size": DIMS}, old).eval()
    fill(again, old, "here")
    assert "transformer.pooler.dense.weight" in weights
    assert (run(again, AUTHORS) == run(network, AUTHORS)).all()


def test_what_is_wrong_with_weights_is_said_at_once(weights: dict[str, torch.Tensor]) -> None:
    layers = "transformer.encoder.layer"
    gone, wrong, nan = f"{layers}.1.output.dense.bias", f"{layers}.1.adapter", f"{layers}.0.output.dense.weight"
    bad = {key: value.clone() for key, value in weights.items() if key != gone}
    bad[nan][3, 4] = float("nan")
    bad["linear.weight"] = torch.zeros(DIMS, HIDDEN + 1)
    bad[wrong] = torch.zeros(2)
    with pytest.raises(UserError) as told:
        fill(build({**SHAPE, "embedding_size": DIMS}, bad), bad, "folder")
    assert str(told.value).splitlines() == [
        "folder holds no weights of LUAR: 4 problems",
        f"  - the file lacks 1 weight ({gone})",
        f"  - the file holds what the architecture does not: 1 weight ({wrong})",
        f"  - of another shape than the configuration says: 1 weight (linear.weight is [{DIMS}, 9], not [{DIMS}, 8])",
        f"  - NaN or infinity is in 1 weight ({nan})",
    ]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_one_weight_that_is_no_number_is_refused(weights: dict[str, torch.Tensor], value: float) -> None:
    bad = {**weights, "linear.bias": torch.tensor([0.0, value, 0.0, 0.0, 0.0])}
    with pytest.raises(
        UserError, match=r"^folder holds no weights of LUAR: NaN or infinity is in 1 weight \(linear\.bias\)$"
    ):
        fill(build({**SHAPE, "embedding_size": DIMS}, bad), bad, "folder")


def test_the_shape_comes_from_the_configuration_then_from_the_weights() -> None:
    """Where nothing is said, it is distilroberta's: two layers of 128 in the weights, then six of 768."""
    narrow = Luar(RobertaConfig(**{**DISTILROBERTA, "hidden_size": 128, "num_attention_heads": 2, "vocab_size": 30}))
    held = {key: value for key, value in narrow.state_dict().items() if ".layer.4." not in key and ".5." not in key}
    config = build({}, held).transformer.config
    assert (config.hidden_size, config.num_attention_heads, config.vocab_size) == (128, 2, 30)
    assert (config.num_hidden_layers, config.intermediate_size) == (4, 3072)
    assert build({"num_attention_heads": 4}, held).transformer.config.num_attention_heads == 4


def test_a_checkpoint_without_its_last_layer_is_refused() -> None:
    """A width of 768 is distilroberta's, which has six layers, whatever the file holds."""
    small = {"vocab_size": 5, "max_position_embeddings": 6, "intermediate_size": 4}
    full = Luar(RobertaConfig(**{**DISTILROBERTA, **small}))
    held = {key: value for key, value in full.state_dict().items() if ".layer.5." not in key}
    network = build(small, held)
    assert network.linear.out_features == 512
    with pytest.raises(UserError, match=r"^folder holds no weights of LUAR: the file lacks 16 weights \(.*layer\.5\."):
        fill(network, held, "folder")
