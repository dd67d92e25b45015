"""The one place that touches mteb's internals: tasks, benchmarks and models enter its registries here."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from obliq_eval.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mteb.models.model_meta import ModelMeta


class AliasRegistry(dict[str, Any]):
    """mteb's model registry with short names beside the full ones.

    An alias answers to look-ups and is absent from iteration, so that listings name each model once.
    """

    def __init__(self, models: Mapping[str, Any]) -> None:
        super().__init__(models)
        self.aliases: dict[str, str] = {}

    def __missing__(self, key: str) -> Any:
        return self[self.aliases[key]]

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or key in self.aliases

    def get(self, key: str, default: Any = None) -> Any:
        """Return the model of this full name or alias."""
        return super().get(self.aliases.get(key, key), default)


def register_all() -> None:
    """Add obliq's tasks, benchmarks and models to the imported mteb.

    Raises:
        RuntimeError: If a registry is not where this version of obliq knows it; the message names mteb's version.
    """
    from obliq_eval.catalogue import catalogue, to_meta
    from obliq_eval.tasks import TASKS, benchmarks

    try:
        _register_tasks({task.metadata.name: task for task in TASKS})
        _register_benchmarks(benchmarks())
        registry = _alias_registry()
    except (AttributeError, KeyError, ImportError, TypeError) as error:
        raise RuntimeError(_moved(error)) from error
    for entry in catalogue().values():
        add_model(to_meta(entry), entry.alias, registry)


def _moved(error: Exception) -> str:
    import importlib.metadata

    version = importlib.metadata.version("mteb")
    return (
        f"obliq cannot register its tasks and models with mteb {version}: a registry has moved "
        f"({type(error).__name__}: {error}). Install a version of mteb that obliq was tested with "
        "(pip install 'mteb>=2.24.14,<=2.26.24'), or set OBLIQ_MTEB_HOOK=0 to use mteb without obliq."
    )


def _register_tasks(tasks: dict[str, type]) -> None:
    # The attribute `get_tasks` of the package is the function; the module is reached through sys.modules.
    module: Any = sys.modules["mteb.get_tasks"]
    known, listed = module._TASKS_REGISTRY, module.TASK_LIST
    new = {name: task for name, task in tasks.items() if name not in known}
    known.update(new)
    module.TASK_LIST = (*listed, *new.values())


def _register_benchmarks(benchmarks: tuple[Any, ...]) -> None:
    module: Any = sys.modules["mteb.benchmarks.get_benchmark"]
    module._build_registry().update({benchmark.name: benchmark for benchmark in benchmarks})


def _alias_registry() -> AliasRegistry:
    """Return mteb's model registry as an `AliasRegistry`, put in place of the plain one on the first call."""
    home: Any = sys.modules["mteb.models.model_implementations"]
    plain = home.MODEL_REGISTRY
    if isinstance(plain, AliasRegistry):
        return plain
    registry = AliasRegistry(plain)
    for name, module in list(sys.modules.items()):
        if name.startswith("mteb.") and getattr(module, "MODEL_REGISTRY", None) is plain:
            module.MODEL_REGISTRY = registry  # type: ignore[attr-defined]
    if not isinstance(sys.modules["mteb.models.get_model_meta"].MODEL_REGISTRY, AliasRegistry):
        raise ImportError(
            "mteb.models.get_model_meta.MODEL_REGISTRY is another object than the registry"
        )
    return registry


def add_model(meta: ModelMeta, alias: str | None = None, registry: AliasRegistry | None = None) -> None:
    """Add one model to the imported mteb, under its full name and an alias.

    Raises:
        UserError: If the name or the alias belongs to another model.
    """
    registry = _alias_registry() if registry is None else registry
    name = str(meta.name)
    known = registry.get(name)
    if known is not None and known != meta:
        raise UserError(f"mteb has another model called {name}; choose another name")
    taken = None if alias is None else registry.get(alias)
    if taken is not None and taken.name != name:
        raise UserError(f"the alias {alias} already means {taken.name}; choose another alias")
    registry[name] = meta
    if alias is not None and alias != name:
        registry.aliases[alias] = name
