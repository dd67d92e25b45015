"""Every test keeps its runs and caches to itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def obliq_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Point `$OBLIQ_HOME` at a folder of the test's own."""
    folder = tmp_path / "obliq-home"
    monkeypatch.setenv("OBLIQ_HOME", str(folder))
    return folder
