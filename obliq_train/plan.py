"""What a recipe will do, before it is done: rows, steps, what is cut, what each anchor is contrasted with, memory."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from obliq_eval.errors import UserError
from obliq_train.reading import check_length

if TYPE_CHECKING:
    from collections.abc import Mapping

    from obliq_train.batches import TrainingSet
    from obliq_train.data import Data
    from obliq_train.footprint import Footprint
    from obliq_train.recipe import Recipe

UNKNOWN = "unknown"
ROLES: tuple[Literal["query", "document"], ...] = ("query", "document")


@dataclass(frozen=True)
class Cut:
    """What training reads of the texts of a role.

    Args:
        texts: Distinct texts.
        limit: Tokens at which they are cut, prefix and special tokens included.
        cut: How many are longer.
        lost: Tokens of those that are not read.
    """

    texts: int
    limit: int
    cut: int
    lost: int


@dataclass(frozen=True)
class Contrast:
    """The documents that one anchor is contrasted with in one batch.

    Args:
        devices: Whose documents they are.
        anchors: Rows that share the contrast.
        positive: The own positive: 1.
        negatives: Own negatives, on average over rows.
        others_positives: Positives of the other rows.
        others_negatives: Negatives of the other rows.
        masked: How many of these are left out on average, because they answer the anchor; None if no rows are known.
    """

    devices: int
    anchors: int
    positive: int
    negatives: float
    others_positives: int
    others_negatives: float
    masked: float | None

    @property
    def documents(self) -> float:
        """All of them, before any is left out."""
        return self.positive + self.negatives + self.others_positives + self.others_negatives


@dataclass(frozen=True)
class Plan:
    """What training will do.

    Args:
        recipe: Its name.
        base: What is adapted.
        rows: `{part: rows}`; None where they are not known.
        doses: Parts of these whose rows are not at hand: their dose is given, which duplicates can only lessen.
        missing: What is not at hand, and what to do about it, one sentence each.
        steps: Optimiser steps on the recipe's devices, at most where there are doses; None if unknown.
        warmup: Those in which the rate rises.
        epochs: Passes over the rows.
        anchors: Anchors behind one step: per device, devices and accumulation multiplied.
        cut: `{role: what is read}`; None where the rows or the tokenizer are not at hand.
        contrasts: On one device, then, if documents are gathered from several, over all of them. Accumulation adds
            gradients, and never enlarges any of them.
        memory: On each device; None where the architecture is not known.
        seconds: Of the whole training; None, since nothing was measured.
        notes: Whatever else has to be said, one sentence each.
    """

    recipe: str
    base: str
    rows: Mapping[str, int | None]
    doses: tuple[str, ...]
    missing: tuple[str, ...]
    steps: int | None
    warmup: int | None
    epochs: float | None
    anchors: int
    cut: Mapping[str, Cut] | None
    contrasts: tuple[Contrast, ...]
    memory: Footprint | None
    seconds: float | None = None
    notes: tuple[str, ...] = field(default_factory=tuple)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        found = asdict(self)
        for one, contrast in zip(found["contrasts"], self.contrasts, strict=True):
            one["documents"] = contrast.documents
        if self.memory is not None:
            found["memory"]["total"] = self.memory.total
        return found

    def table(self) -> list[tuple[str, str]]:
        """Return what it says as `(what, value)`, for people."""
        rows = [("base", self.base)]
        rows += [(f"rows of {name}", _count(count, at_most=name in self.doses)) for name, count in self.rows.items()]
        rows += [
            ("optimiser steps", _count(self.steps, at_most=bool(self.doses))),
            ("of them warm-up", _count(self.warmup, at_most=bool(self.doses))),
            ("epochs", UNKNOWN if self.epochs is None else f"{self.epochs:.3g}"),
            ("anchors of a step", f"{self.anchors:,}"),
        ]
        for role, cut in (self.cut or {}).items():
            lost = f", {cut.lost:,} tokens not read" if cut.cut else ""
            rows.append((f"{role} texts cut", f"{cut.cut:,} of {cut.texts:,} at {cut.limit:,} tokens{lost}"))
        rows += [(f"contrast {_place(one)}", _written(one)) for one in self.contrasts]
        if self.memory is not None:
            rows += _memory_rows(self.memory)
        return [*rows, ("time", "unknown: nothing was measured" if self.seconds is None else f"{self.seconds:,.0f} s")]


def plan(
    recipe: Recipe,
    data: Data | None,
    tokenizer: Any | None,
    absent: Mapping[str, str] | None = None,
    notes: tuple[str, ...] = (),
) -> Plan:
    """Return what a recipe will do; nothing is trained, and no weights are read.

    Args:
        recipe: The recipe.
        data: The rows that are at hand; None for none.
        tokenizer: The base's; None if it is not at hand.
        absent: `{part: what is missing}`, for the parts whose rows are not in `data`.
        notes: What has to be said beside, one sentence each.

    Raises:
        UserError: If the rows cannot be read or tokenised.
    """
    absent = dict(absent or {})
    lists = recipe.trains == "reranker"
    if lists and tokenizer is not None:
        check_length("model.document_length", recipe.model.document_length, tokenizer, pair=True)
    made = None if data is None or tokenizer is None or lists else _training_set(recipe, data, tokenizer)
    rows = _rows(recipe, data)
    doses = {part.name: part.dose for part in recipe.used if rows[part.name] is None and part.dose is not None}
    rows |= doses
    known = [count for count in rows.values() if count is not None]
    total = sum(known) if len(known) == len(rows) else None
    devices = recipe.batch.devices
    steps = recipe.schedule.steps if total is None else _steps(recipe, total, devices)
    told = [*_told(recipe, made, total), *notes]
    contrasts = _contrasts(recipe, made)
    return Plan(
        recipe=recipe.name,
        base=recipe.model.base,
        rows=rows,
        doses=tuple(doses),
        missing=tuple(
            wanted if wanted.startswith("part ") else f"part {name!r}: {wanted}" for name, wanted in absent.items()
        ),
        steps=steps,
        warmup=None if steps is None else math.ceil(steps * recipe.schedule.warmup),
        epochs=_epochs(recipe, total, steps),
        anchors=recipe.batch.per_device * devices * recipe.batch.accumulation,
        cut=None if made is None else _cut(recipe, made),
        contrasts=contrasts,
        memory=_memory(recipe, made, contrasts, told),
        notes=tuple(told),
    )


def _place(contrast: Contrast) -> str:
    return "on one device" if contrast.devices == 1 else f"gathered from {contrast.devices} devices"


def _written(contrast: Contrast) -> str:
    masked = "" if contrast.masked is None else f"; {contrast.masked:.2f} of them masked on average, being answers"
    return (
        f"{contrast.documents:,.4g} documents: own positive, {contrast.negatives:.3g} own negatives, "
        f"{contrast.others_positives:,} positives and {contrast.others_negatives:,.4g} negatives of other rows{masked}"
    )


def _memory_rows(memory: Footprint) -> list[tuple[str, str]]:
    from obliq_models.commands.options import size

    return [
        ("memory of a device", f"about {size(memory.total)}, beside what Python and its libraries take"),
        ("of it weights", f"{size(memory.weights)} ({memory.parameters:,} of the base, {memory.trained:,} trained)"),
        ("of it gradients and AdamW", size(memory.optimiser)),
        ("of it activations", f"{size(memory.activations)} for a sub-batch of {memory.tokens:,} tokens"),
        ("of it vectors and logits", size(memory.contrast)),
    ]


def _training_set(recipe: Recipe, data: Data, tokenizer: Any) -> TrainingSet:
    from obliq_eval.edges import read_edges
    from obliq_train.batches import TrainingSet
    from obliq_train.rows import read_rows

    edges = {name: read_edges(path) for name, path in data.edges.items()}
    return TrainingSet.of(list(read_rows(data.rows)), edges, tokenizer, recipe)


def _count(number: int | None, *, at_most: bool) -> str:
    if number is None:
        return UNKNOWN
    return f"at most {number:,}" if at_most else f"{number:,}"


def _rows(recipe: Recipe, data: Data | None) -> dict[str, int | None]:
    if data is None:
        return {part.name: None for part in recipe.used}
    from obliq_train.rows import read_rows

    found = Counter(row.source for row in read_rows(data.rows))
    return {part.name: found.get(part.name) for part in recipe.used}


def _steps(recipe: Recipe, rows: int, devices: int) -> int:
    from obliq_train.trainer import steps

    return steps(recipe, rows, devices)


def _epochs(recipe: Recipe, rows: int | None, steps: int | None) -> float | None:
    if recipe.schedule.epochs is not None:
        return recipe.schedule.epochs
    if rows is None or steps is None:
        return None
    once = recipe.model_copy(update={"schedule": recipe.schedule.model_copy(update={"epochs": 1.0, "steps": None})})
    return steps / _steps(once, rows, recipe.batch.devices)


def _cut(recipe: Recipe, made: TrainingSet) -> dict[str, Cut]:
    limits = {"query": recipe.model.query_length, "document": recipe.model.document_length}
    return {
        role: Cut(
            made.counts[f"{role} texts"],
            limits[role],
            made.counts[f"truncated {role} texts"],
            made.counts[f"lost {role} tokens"],
        )
        for role in ROLES
    }


def _contrasts(recipe: Recipe, made: TrainingSet | None) -> tuple[Contrast, ...]:
    if recipe.loss.kind == "margin-mse" or recipe.trains == "reranker":
        return ()
    negatives = recipe.negatives.count if made is None else float((made.places[:, 2:] >= 0).sum() / len(made))
    if made is not None:
        made.check_contrast(recipe, recipe.batch.devices)
    several = [1, recipe.batch.devices] if recipe.loss.gather and recipe.batch.devices > 1 else [1]
    found = []
    for devices in several:
        anchors = recipe.batch.per_device * devices
        masked = None if made is None else made.contrasted(anchors).masked if recipe.loss.mask else 0.0
        found.append(Contrast(devices, anchors, 1, negatives, anchors - 1, (anchors - 1) * negatives, masked))
    return tuple(found)


def _memory(
    recipe: Recipe, made: TrainingSet | None, contrasts: tuple[Contrast, ...], notes: list[str]
) -> Footprint | None:
    from obliq_train.footprint import footprint, shape_of

    try:
        shape = shape_of(recipe)
    except UserError as error:
        notes.append(f"memory is not known: {error}")
        return None
    each = 2 + recipe.negatives.count if made is None else made.places.shape[1]
    longest = max(recipe.model.query_length, recipe.model.document_length)
    row_tokens = float(recipe.model.query_length + (each - 1) * recipe.model.document_length)
    if made is not None:
        longest, row_tokens = int(made.lengths.max()), float(made.lengths.sum(1).mean())
    return footprint(
        recipe,
        shape,
        longest=longest,
        batch_tokens=round(recipe.batch.per_device * row_tokens),
        texts=recipe.batch.per_device * each,
        contrasted=round(contrasts[-1].documents) if contrasts else 0,
    )


def _told(recipe: Recipe, made: TrainingSet | None, rows: int | None) -> list[str]:
    found = []
    if recipe.batch.accumulation > 1:
        found.append(
            f"accumulation adds the gradients of {recipe.batch.accumulation} batches: it never enlarges a contrast"
        )
    if recipe.trains == "reranker":
        found.append("a reranker learns each row's list by itself: no contrast in a batch")
    elif recipe.loss.kind == "margin-mse":
        found.append("MarginMSE compares an anchor's own positive with its own negatives alone: no contrast in a batch")
    if made is None:
        found.append(f"texts were not counted: lengths are taken as the limits, negatives as {recipe.negatives.count}")
    elif made.counts["positives beside the first"]:
        found.append(
            f"{made.counts['positives beside the first']:,} positives beside the first of their row are never a "
            "row's positive: they are answers, and left out where they meet their anchor"
        )
    blank = {role: made.counts.get(f"blank {role} texts", 0) for role in ROLES} if made is not None else {}
    found += [
        f"{count:,} of the {role} texts {'is' if count == 1 else 'are'} blank, and trained on as such"
        for role, count in blank.items()
        if count
    ]
    size = recipe.batch.per_device * recipe.batch.devices
    if rows is not None and rows % size:
        found.append(f"{rows % size:,} rows of each epoch, others each time, are left out: only full batches are used")
    return found
