"""Requests, and the prompts of a judge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from obliq_models.llm.protocol import Request

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def ask() -> Callable[..., Request]:
    """Return a function from a text and settings to a request."""

    def make(text: str = "hello", **settings: Any) -> Request:
        return Request(((("user", text)),), settings.pop("model", "judge"), **settings)

    return make
