"""The hook: when `mteb` is imported, obliq's tasks, benchmarks and models are added to its registries.

A start-up file (see `_packaging.HOOK_LINE`) puts a finder first on `sys.meta_path`, which asks `find_spec` here where
mteb is. `OBLIQ_MTEB_HOOK=0` switches it off.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType


def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
    """Find mteb as Python would without the hook, and have its loader register obliq afterwards."""
    if os.environ.get("OBLIQ_MTEB_HOOK") == "0":
        return None
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        if find is None or getattr(finder, "__module__", None) == __name__:
            continue
        spec: ModuleSpec | None = find(name, path, target)
        if spec is not None:
            if spec.loader is not None:
                spec.loader = _RegisteringLoader(spec.loader)  # type: ignore[assignment]  # it has what is called
            return spec
    return None


class _RegisteringLoader:
    """Runs mteb's own loader, then registers."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        from obliq_eval.registry import register_all

        register_all()
