"""The models that are known by name: collected from entry points, never by importing a model."""

from __future__ import annotations

import importlib
import re
import sys
import warnings
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, get_args

from obliq_eval.errors import UserError, near

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mteb.models.model_meta import ModelMeta

GROUP = "obliq.models"
Kind = Literal["lexical", "dense", "late-interaction", "stylometric", "generative", "pipeline"]
_NAME = re.compile(r"[^\s/@+:]+/[^\s/@+:]+")
_REFERENCE = re.compile(r"[\w.]+:[\w.]+")
_ALIAS = re.compile(r"[^\s/@+:]+")
_MTEB_TYPES: Mapping[str, Any] = {"lexical": "sparse", "late-interaction": "late-interaction", "pipeline": "hybrid"}


@dataclass(frozen=True)
class ModelEntry:
    """One line of the table of models.

    Args:
        name: Full name, `organisation/model`; never `__`, which result folders use for the slash.
        alias: Short name; without `/`, `@`, `+`, `:`, which mean something after `-m`.
        loader: Reference to a callable, `module:function`, called as mteb calls a loader.
        revision: What identifies the weights or the code: it is part of every cache key.
        kind: How documents are scored.
        summary: One line.
        licence: Licence of the weights or the code, as an SPDX-like name or a sentence.
        base: Repository of the model that this one is built on, `@` and its commit where that is pinned.
        base_licence: Terms of that model, which hold here as well.
        data_licence: Licence of what it was trained on.
        settings: Keyword arguments for the loader.
        extra: The extra of this package that installs what the model needs.
        dims: Length of one vector.
        query_length: Longest query in tokens.
        document_length: Longest document in tokens.
        query_prefix: Text put before every query.
        document_prefix: Text put before every document.
        n_parameters: Number of weights, 0 for a model that has none.
        served: It is run by somebody else's server, to which texts are sent; there are no weights to be had.
        memory: What it needs, in words.
        risk: What to bear in mind when choosing it.
        presumed: What about this entry is a guess, as a sentence; empty where nothing is.
        paper_row: The row of the paper's tables that it repeats.
        languages: ISO 639-3 codes with a script.
        meta: A ready `mteb.ModelMeta`, for a model that was registered as one.
    """

    name: str
    alias: str
    loader: str
    revision: str
    kind: Kind = "dense"
    summary: str = ""
    licence: str = ""
    base: str = ""
    base_licence: str = ""
    data_licence: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    extra: str | None = None
    dims: int | None = None
    query_length: int | None = None
    document_length: int | None = None
    query_prefix: str | None = None
    document_prefix: str | None = None
    n_parameters: int | None = None
    served: bool = False
    memory: str = ""
    risk: str = ""
    presumed: str = ""
    paper_row: str | None = None
    languages: tuple[str, ...] = ("eng-Latn",)
    meta: ModelMeta | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or "__" in self.name:
            raise UserError(
                f"model name {self.name!r} is not organisation/model; use exactly one slash, and none of "
                'blanks, "@", "+", ":" and "__"'
            )
        if self.meta is None and not (isinstance(self.loader, str) and _REFERENCE.fullmatch(self.loader)):
            raise UserError(
                f'loader {self.loader!r} of {self.name} is not of the form "module:function": other processes load '
                "the model by it"
            )
        if not _ALIAS.fullmatch(self.alias) or self.alias.endswith(".toml"):
            raise UserError(
                f'alias {self.alias!r} of {self.name} may not hold blanks, "/", "@", "+", ":" nor end in .toml'
            )


@dataclass(frozen=True)
class Origin:
    """How a model was built, so that another process can build the same.

    Args:
        reference: `module:function`.
        name: Full name of the model.
        settings: Keyword arguments, the revision among them.
    """

    reference: str
    name: str
    settings: Mapping[str, Any]

    def build(self, **changed: Any) -> Any:
        """Load the model again, some settings changed: the device, say."""
        return Loader(self.reference)(self.name, **{**self.settings, **changed})


class Loader:
    """A loader by reference: the model's module is imported when the model is loaded.

    mteb copies, compares and writes down the loader of a model, under its `__name__`.

    Args:
        reference: `module:function`.
    """

    def __init__(self, reference: str) -> None:
        self.__name__ = reference

    def __call__(self, name: str, **settings: Any) -> Any:
        """Import the callable, call it as mteb does, and note on the model how it was built."""
        module, _, function = self.__name__.partition(":")
        model = getattr(importlib.import_module(module), function)(name, **settings)
        if hasattr(model, "origin"):
            model.origin = Origin(self.__name__, name, settings)
        return model

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Loader) and other.__name__ == self.__name__

    def __hash__(self) -> int:
        return hash(self.__name__)


_registered: dict[str, tuple[ModelEntry, str]] = {}


def catalogue() -> Mapping[str, ModelEntry]:
    """Return every known model by alias: those of installed packages, then those registered at run time.

    Raises:
        UserError: If two models claim one name or alias; the message names where both come from.
    """
    known: dict[str, tuple[ModelEntry, str]] = {}
    for entry, origin in (*_installed(), *_registered.values()):
        _add(known, entry, origin)
    return MappingProxyType({alias: entry for alias, (entry, _) in known.items()})


def resolve(name: str) -> ModelEntry:
    """Return the model with this alias or full name.

    Raises:
        UserError: If there is none; the message suggests the nearest name.
    """
    models = catalogue()
    by_name = {entry.name: entry for entry in models.values()}
    found = models.get(name) or by_name.get(name)
    if found is None:
        raise UserError(f"no model is called {name!r}{near(name, (*models, *by_name))}")
    return found


def register(model: ModelEntry | ModelMeta, alias: str | None = None) -> ModelEntry:
    """Make a model known until the process ends, here and, where it is loaded, to mteb.

    Args:
        model: An entry, or an `mteb.ModelMeta`.
        alias: Its short name; by default the entry's own, or the last part of the meta's name in lower case.

    Raises:
        UserError: If another model has this name or alias.
    """
    entry = _as_entry(model, alias)
    known = {a: (e, o) for e, o in (*_installed(), *_registered.values()) for a in (e.alias,)}
    _add(known, entry, "obliq_models.register")
    if "mteb.models.model_implementations" in sys.modules:
        from obliq_eval.registry import add_model

        add_model(to_meta(entry), entry.alias)
    _registered[entry.alias] = (entry, "obliq_models.register")
    return entry


def to_meta(entry: ModelEntry) -> ModelMeta:
    """Return the entry as an `mteb.ModelMeta`; its loader imports the model only when it is loaded."""
    from mteb.models.model_meta import ModelMeta
    from mteb.types import Licenses

    if entry.meta is not None:
        return entry.meta
    given = {
        "query_prefix": entry.query_prefix,
        "document_prefix": entry.document_prefix,
        "query_length": entry.query_length,
        "document_length": entry.document_length,
    }
    licence, built_on = entry.licence.lower(), entry.base.partition("@")[0]
    lengths = [n for n in (entry.query_length, entry.document_length) if n is not None]
    return ModelMeta(
        loader=Loader(entry.loader),
        loader_kwargs={**{key: value for key, value in given.items() if value is not None}, **entry.settings},
        name=entry.name,
        revision=entry.revision,
        release_date=None,
        languages=list(entry.languages),
        n_parameters=entry.n_parameters,
        memory_usage_mb=None,
        max_tokens=max(lengths, default=None),
        embed_dim=entry.dims,
        license=licence if licence in get_args(Licenses) else None,
        open_weights=not entry.served,
        public_training_code=None,
        public_training_data=None,
        framework=_framework(entry),
        similarity_fn_name=None,
        use_instructions=bool(entry.query_prefix or entry.document_prefix),
        training_datasets=None,
        adapted_from=built_on if _NAME.fullmatch(built_on) else None,  # a folder of this machine is no model's name
        model_type=[_MTEB_TYPES.get(entry.kind, "dense")],
    )


def _framework(entry: ModelEntry) -> list[Any]:
    if entry.served:
        return ["API"]
    return [] if entry.kind in {"lexical", "stylometric"} else ["Sentence Transformers", "PyTorch"]


@cache
def _installed() -> tuple[tuple[ModelEntry, str], ...]:
    """Return the models of the entry-point group, each with the package that brings it; a broken one is skipped."""
    found: list[tuple[ModelEntry, str]] = []
    for point in entry_points(group=GROUP):
        package = point.dist.name if point.dist is not None else "an unknown package"
        origin = f"package {package} ({point.name} = {point.value})"
        try:
            found += [(_as_entry(model), origin) for model in _models(point.load())]
        except Exception as error:
            warnings.warn(
                f"the models of {origin} are left out: {type(error).__name__}: {error}", RuntimeWarning, stacklevel=3
            )
    return tuple(found)


def _models(value: Any) -> Iterator[ModelEntry | ModelMeta]:
    if isinstance(value, ModelEntry) or _is_meta(value):
        yield value
        return
    models: Iterable[Any] = value.values() if hasattr(value, "values") else value
    yield from models


def _is_meta(value: object) -> bool:
    """Tell whether this is an `mteb.ModelMeta`, without importing mteb: if it is one, mteb is loaded."""
    module = sys.modules.get("mteb.models.model_meta")
    return module is not None and isinstance(value, module.ModelMeta)


def _as_entry(model: object, alias: str | None = None) -> ModelEntry:
    if isinstance(model, ModelEntry):
        return model if alias is None else replace(model, alias=alias)
    if not _is_meta(model):
        raise UserError(f"a model is a ModelEntry or an mteb ModelMeta, not {type(model).__name__}")
    meta: Any = model
    name = str(meta.name)
    return ModelEntry(
        name=name,
        alias=alias or name.rpartition("/")[2].lower(),
        loader="",
        revision=meta.revision or "",
        kind="lexical" if "sparse" in meta.model_type else "dense",
        licence=meta.license or "",
        dims=meta.embed_dim if isinstance(meta.embed_dim, int) else None,
        n_parameters=meta.n_parameters,
        languages=tuple(meta.languages or ()),
        meta=meta,
    )


def _add(known: dict[str, tuple[ModelEntry, str]], entry: ModelEntry, origin: str) -> None:
    """Add one entry to those known by alias, or refuse it."""
    for other, source in known.values():
        if entry == other:
            return
        for kind, mine, theirs in (("alias", entry.alias, other.alias), ("name", entry.name, other.name)):
            if mine == theirs:
                raise UserError(
                    f"the {kind} {mine!r} is claimed twice: by {other.name} from {source} "
                    f"and by {entry.name} from {origin}; rename one of them"
                )
    known[entry.alias] = (entry, origin)
