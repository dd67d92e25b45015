"""The one place that touches mteb's internals: tasks, benchmarks and models enter its registries here."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from obliq_eval.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import ModuleType

    from mteb.models.model_meta import ModelMeta

TESTED = ("2.24.14", "2.26.24")  # the oldest and the newest mteb that the tests have seen
TASKS_MODULE = "obliq_eval.tasks"


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
    """Add obliq's tasks, benchmarks and models to the imported mteb; again changes nothing.

    Raises:
        UserError: If a name of obliq already belongs to something else in mteb, or to two installed models.
        RuntimeError: If a registry is not where this version of obliq knows it; the message names mteb's version.
    """
    from obliq_eval.catalogue import catalogue, to_meta

    try:
        tasks = _tasks_module()
        _register_tasks(tasks.TASKS)
        _register_benchmarks(tasks.benchmarks(), tasks.TASKS)
        registry = _alias_registry()
        models = [(to_meta(entry), entry.alias) for entry in catalogue().values()]
    except UserError:
        raise
    except Exception as error:
        raise RuntimeError(_moved(error)) from error
    for meta, alias in models:
        add_model(meta, alias, registry)


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


def _moved(error: Exception) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version("mteb")
    except PackageNotFoundError:
        found = "of unknown version"
    return (
        f"obliq cannot register its tasks and models with mteb {found}: a registry has moved "
        f"({type(error).__name__}: {error}). Install a version of mteb that obliq was tested with "
        f"(pip install 'mteb>={TESTED[0]},<={TESTED[1]}'), or set OBLIQ_MTEB_HOOK=0 to use mteb without obliq."
    )


def _tasks_module() -> Any:
    """Return `obliq_eval.tasks`, complete even when its own import is what has imported mteb.

    In that case the module stands half-made in `sys.modules`. It is imported afresh, and the import under way then
    returns the complete module as well, since Python takes what `sys.modules` holds at the end.
    """
    if not hasattr(sys.modules.get(TASKS_MODULE), "benchmarks"):
        sys.modules.pop(TASKS_MODULE, None)
    return importlib.import_module(TASKS_MODULE)


def _register_tasks(tasks: Iterable[Any]) -> None:
    # The attribute `get_tasks` of the package is the function; the module is reached through sys.modules.
    module: Any = sys.modules["mteb.get_tasks"]
    ours = {task.metadata.name: task for task in tasks}
    known: dict[str, Any] = module._TASKS_REGISTRY
    _refuse([name for name in ours if name in known and known[name].__module__ != TASKS_MODULE], "task")
    others = (task for task in module.TASK_LIST if task.metadata.name not in ours)
    module.TASK_LIST = (*others, *ours.values())
    known.update(ours)


def _register_benchmarks(benchmarks: Iterable[Any], tasks: Iterable[Any]) -> None:
    module: Any = sys.modules["mteb.benchmarks.get_benchmark"]
    ours = {benchmark.name: benchmark for benchmark in benchmarks}
    known: dict[str, Any] = module._build_registry()  # cached: every look-up reads this very dictionary
    if module._build_registry() is not known:
        raise TypeError("mteb.benchmarks.get_benchmark._build_registry() is not cached")
    _refuse([name for name in ours if name in known and not {*map(type, known[name].tasks)} <= {*tasks}], "benchmark")
    known.update(ours)


def _refuse(names: list[str], kind: str) -> None:
    if names:
        raise UserError(f"mteb has another {kind} called {', '.join(names)}; set OBLIQ_MTEB_HOOK=0 to use mteb's own")


def _alias_registry() -> AliasRegistry:
    """Return mteb's model registry as an `AliasRegistry`, put in place of the plain one on the first call."""
    home: Any = sys.modules["mteb.models.model_implementations"]
    plain = home.MODEL_REGISTRY
    if isinstance(plain, AliasRegistry):
        return plain
    registry = AliasRegistry(plain)
    for module in _holders(plain):
        module.MODEL_REGISTRY = registry
    if not isinstance(sys.modules["mteb.models.get_model_meta"].MODEL_REGISTRY, AliasRegistry):
        raise TypeError("mteb.models.get_model_meta.MODEL_REGISTRY is another object than the registry")
    return registry


def _holders(registry: object) -> list[Any]:
    """Return the modules of mteb that have imported its model registry by name."""
    modules: list[ModuleType] = [module for name, module in sys.modules.items() if name.startswith("mteb.")]
    return [module for module in modules if vars(module).get("MODEL_REGISTRY") is registry]
