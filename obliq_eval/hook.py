"""Start-up hook: when `mteb` is imported, add obliq's tasks, benchmarks and models to its registries.

Every interpreter of the environment runs `install`, so it imports nothing and only adds one finder.
`OBLIQ_MTEB_HOOK=0` switches it off.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType


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


class _MtebFinder:
    """Finds `mteb` as everyone else would, and wraps its loader."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "mteb":
            return None
        for finder in sys.meta_path:
            if finder is not _MtebFinder and (spec := finder.find_spec(name, path, target)) is not None:
                if spec.loader is not None:
                    spec.loader = _RegisteringLoader(spec.loader)  # type: ignore[assignment]
                return spec
        return None


def install() -> None:
    """Put the finder first on `sys.meta_path`, once, unless the hook is switched off."""
    if os.environ.get("OBLIQ_MTEB_HOOK") != "0" and _MtebFinder not in sys.meta_path:
        sys.meta_path.insert(0, _MtebFinder)
