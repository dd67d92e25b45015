"""Which language model is asked: environment, options, and what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from obliq_eval.errors import UserError
from obliq_models.llm.cache import ReplayError
from obliq_models.llm.protocol import Request, Response, key_of
from obliq_models.llm.settings import SERVER, LLMSettings


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*SERVER, "OBLIQ_LLM"):
        monkeypatch.delenv(name, raising=False)


def test_options_come_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OBLIQ_LLM", "qwen")
    monkeypatch.setenv("OBLIQ_LLM_TEMPERATURE", "0.7")
    monkeypatch.setenv("OBLIQ_LLM_TEMPLATE", '{"enable_thinking": false}')
    monkeypatch.setenv("OBLIQ_LLM_LIMIT_CALLS", "9")
    monkeypatch.setenv("OBLIQ_LLM_REPLAY", "1")
    assert LLMSettings.read() == LLMSettings(
        model="qwen", temperature=0.7, template={"enable_thinking": False}, limit_calls=9, replay=True
    )
    changed = LLMSettings.read(model="other", temperature=None, template='{"a": 1}', prices=Path("p.toml"))
    assert (changed.model, changed.temperature, changed.template) == ("other", 0.7, {"a": 1})


def test_everything_wrong_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OBLIQ_LLM_MAX_TOKENS", "many")
    monkeypatch.setenv("OBLIQ_LLM_TEMPLATE", "[1]")
    with pytest.raises(UserError) as error:
        LLMSettings.read(backend="opneai", limit_money=1.0)
    for part in (
        "$OBLIQ_LLM_MAX_TOKENS is 'many': not a whole number",
        "$OBLIQ_LLM_TEMPLATE is '[1]': not a JSON object",
        "backend is 'opneai', not one of openai, vllm, transformers; did you mean \"openai\"",
        "a limit on money needs a price table",
    ):
        assert part in str(error.value)


@pytest.mark.parametrize("value", ["nan", "inf", "-0.1"])
def test_a_temperature_is_a_finite_number(value: str) -> None:
    with pytest.raises(UserError, match="temperature is"):
        LLMSettings.read(temperature=value)


def test_a_missing_model_or_server_shows_how_to_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError) as error:
        LLMSettings.read().open()
    for part in ("$OBLIQ_LLM", "--llm", "$OPENAI_BASE_URL", "http://localhost:8000/v1", "`obliq demo llm`"):
        assert part in str(error.value)
    assert "\n" not in str(error.value)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    with pytest.raises(UserError, match="OBLIQ_LLM"):
        LLMSettings.read().check()
    LLMSettings.read(model="m").check()
    LLMSettings(model="m", backend="transformers").check()  # needs no server


def test_a_replay_needs_no_server() -> None:
    """What was answered can be read again where no server is, and only what was not is an error."""
    pytest.importorskip("openai", reason="the extra `openai` is optional")
    request = Request((("user", "hello"),), "m")
    with LLMSettings(model="m", replay=True).open() as client:
        assert client.cache is not None
        client.cache.put(key_of(request, client.backend), Response("stored"))
        assert client.run(client.ask(request)).text == "stored"
        with pytest.raises(ReplayError, match="no stored answer"):
            client.run(client.ask(Request((("user", "other"),), "m")))


def test_what_answers_is_told_and_no_secret_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-to-be-seen")
    settings = LLMSettings(model="m", concurrency=7, limit_calls=3)
    told = settings.answering()
    assert set(told) == {"model", "backend", "temperature", "max_tokens", "seed", "template", "attempts"}
    assert "sk-not" not in repr(settings)
    assert LLMSettings(concurrency=7, limit_calls=3).with_answering(told) == settings
    with settings.open() as client:
        assert client.budget is not None
        assert client.budget.calls == 3
