"""A task-conditional listwise reranker that learns a teacher's lists (paper, appendix N, point 5).

The student is a cross-encoder of sentence-transformers: the task's instruction and the query are read against each
document, and the softmax of its scores over a row's documents is brought to the softmax of the teacher's (ListNet, Cao
et al. 2007, "Learning to rank: from pairwise approach to listwise approach"). How the paper's was trained is not
published. Rows come from `obliq negatives`, with `--scores` or `--ranking`. The folder is a whole cross-encoder, with
an instruction for each task, and serves as the second half of `A+B`.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from obliq_eval import show
from obliq_eval.errors import UserError
from obliq_eval.home import whole_folder
from obliq_train import build as building
from obliq_train import card, checkpoints, outputs, trainer
from obliq_train.provenance import sha256
from obliq_train.reading import told
from obliq_train.rows import Passage, read_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    import datasets
    from sentence_transformers import CrossEncoder

    from obliq_train import curves
    from obliq_train.build import Origin
    from obliq_train.data import Data
    from obliq_train.outputs import Trained
    from obliq_train.recipe import Recipe
    from obliq_train.rows import Row

OBJECTIVE = "ListNet: cross entropy between the softmax of the teacher's scores and of the student's, over a row's list"
COLUMN = "row"
FEATURE = "texts_input_ids"
"""The only tensor of a batch: the numbers of its rows. sentence-transformers' trainer takes it for one feature."""
AT_ONCE = 4_096
"""Pairs whose tokens are counted at a time."""


@dataclass(frozen=True, eq=False)
class Lists:
    """What is learned; it is the trainer's collator as well.

    Args:
        queries: Each row's query behind its task's instruction.
        documents: Each row's documents.
        scores: The teacher's score of each of them.
        prompts: `{task: what stands before its queries}`.
        counts: Whatever was left out or cut, by its name.
    """

    queries: tuple[str, ...]
    documents: tuple[tuple[str, ...], ...]
    scores: tuple[tuple[float, ...], ...]
    prompts: Mapping[str, str]
    counts: Counter[str] = field(default_factory=Counter)
    valid_label_columns: tuple[str, ...] = ()

    @classmethod
    def of(cls, rows: Iterable[Row], recipe: Recipe) -> Lists:
        """Return the lists of rows: those without scores, or with one document, are left out and counted.

        Raises:
            UserError: If nothing is left, or the rows of a task have several instructions.
        """
        counts: Counter[str] = Counter()
        some: list[Row] = []
        for row in rows:
            usable = len(row.positives) + len(row.negatives) > 1
            if usable and row.scores is not None:
                some.append(row)
            else:
                counts[
                    "rows left out, without a teacher's scores" if usable else "rows left out, with one document"
                ] += 1
        if not some:
            raise UserError(
                "no row has a teacher's list: write rows with `obliq negatives … --scores MODEL` or `--ranking RUN`"
            )
        tasks = {part.name: part.task for part in recipe.part}
        prompts = _prompts(some, tasks)
        counts["rows"] = len(some)
        counts["documents"] = sum(len(row.positives) + len(row.negatives) for row in some)
        return cls(
            tuple(prompts.get(tasks.get(row.source, ""), "") + row.query.text if not row.query.instruction
                  else told(row.query) for row in some),
            tuple(tuple(told(passage) for passage in (*row.positives, *row.negatives)) for row in some),
            tuple((*scores[0], *scores[1]) for row in some if (scores := row.scores)),
            prompts,
            counts,
        )  # fmt: skip

    def __len__(self) -> int:
        """Return the number of lists."""
        return len(self.queries)

    @property
    def dataset(self) -> datasets.Dataset:
        """The lists by their numbers."""
        import datasets

        return datasets.Dataset.from_dict({COLUMN: list(range(len(self)))})

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return a batch: the numbers of its lists."""
        import torch

        return {FEATURE: torch.tensor([feature[COLUMN] for feature in features])}

    def count_cut(self, model: CrossEncoder) -> None:
        """Count the pairs that are longer than what the model reads."""
        tokenizer: Any = model.tokenizer
        longest = model.max_seq_length or 0
        pairs = [(q, text) for q, texts in zip(self.queries, self.documents, strict=True) for text in texts]
        for start in range(0, len(pairs), AT_ONCE):
            read = tokenizer(
                *map(list, zip(*pairs[start : start + AT_ONCE], strict=True)), truncation=False, verbose=False
            )
            self.counts["truncated pairs"] += sum(len(ids) > longest for ids in read["input_ids"])


def train(recipe: Recipe, data: Data, output: Path, *, fresh: bool = False, progress: bool = True) -> Trained:
    """Train a reranker and write its folder, or go on where the same command was stopped.

    Args:
        recipe: The recipe; `lora.targets = []` trains all weights, anything else an adapter and the head, folded into
            the base at the end. `model.document_length` is the length of query and document together.
        data: Its rows.
        output: The folder; beside it `OUTPUT-run` holds checkpoints and curves.
        fresh: As for `trainer.train`.
        progress: Show a bar on standard error where that is a terminal.

    Raises:
        MissingExtraError: If peft or accelerate is not installed.
        Stopped: After Ctrl-C or SIGTERM, once a checkpoint is written.
        UserError: As `trainer.train` says; and if no row has a teacher's list.
    """
    if recipe.trains != "reranker":
        raise UserError(f"{recipe.name} trains a {recipe.trains}, and this trains rerankers")
    trainer.check_start(output, fresh=fresh)
    if recipe.evaluation.tasks:
        show.warn("nothing is measured while a reranker is trained: run it afterwards, as -m RETRIEVER+FOLDER")
    from obliq_train.watch import quiet

    with quiet():
        return _train(recipe, data, output, fresh=fresh, shown=progress)


def _train(recipe: Recipe, data: Data, output: Path, *, fresh: bool, shown: bool) -> Trained:
    from obliq_train.listwise_trainer import ListNet, Trainer
    from obliq_train.validation import Dev
    from obliq_train.watch import asked_to_stop

    folder = checkpoints.Folder.beside(output)
    args = trainer.arguments(recipe, folder)
    lists = Lists.of(read_rows(data.rows), recipe)
    total = trainer.steps(recipe, len(lists), args.world_size)
    base = building.origin(recipe)
    model, head = build(recipe, base, lists.prompts)
    lists.count_cut(model)
    identity = trainer.identity_of(recipe, data, base, args)
    with trainer.claimed(folder, identity, args, output if fresh else None), asked_to_stop() as asked:
        texts: Any = lists
        going = Trainer(model, args, texts, ListNet(model, lists), folder=folder, keep=recipe.run.keep_checkpoints)
        if going.is_fsdp_enabled:
            raise UserError("a reranker is not trained with its weights spread over devices (FSDP): use torchrun alone")
        found, _ = trainer.go(going, recipe, folder, Dev(()), total, asked, shown=shown)
        if args.process_index == 0:
            facts = outputs.manifest_of(recipe, data, identity, lists, found, total, going.args)
            del facts["contrast"]
            _write(output, recipe, going.plain, found, {**facts, "objective": OBJECTIVE, "head": head}, base.name)
        going.accelerator.wait_for_everyone()
        trainer.check_asked(asked, output)
    return outputs.written(output, total)


def build(recipe: Recipe, base: Origin, prompts: Mapping[str, str]) -> tuple[Any, str]:
    """Return the student, and whether its head is the base's own or new; what is new depends on the seed alone.

    Args:
        recipe: The recipe.
        base: Where its base is: a cross-encoder, or any encoder, which then gets a new head.
        prompts: `{task: what stands before its queries}`; saved with it.

    Raises:
        UserError: If the base is not whole, needs code that nobody vouches for, or has no layer for a target.
    """
    import torch
    from sentence_transformers import CrossEncoder

    from obliq_models.retrievers import adapters
    from obliq_models.retrievers.guards import pickle_problems

    files, name = base.files, f"model.base {recipe.model.base}"
    if problems := pickle_problems(files):
        raise UserError(f"{name}: {problems[0]}")
    code = adapters.code(name, files, trust=recipe.model.trust_remote_code)
    kinds = files.record("config.json").get("architectures") or [""]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.run.seed)
        try:
            model = CrossEncoder(
                files.place,
                device="cpu",
                num_labels=1,
                max_length=recipe.model.document_length,
                prompts=dict(prompts),
                activation_fn=torch.nn.Identity(),  # the usual sigmoid makes ties of high scores
                trust_remote_code=bool(code["trust_remote_code"]),
                model_kwargs={"dtype": getattr(torch, building.DTYPES[recipe.run.precision])},
                **files.given,
            )
        except Exception as error:  # of a base of another kind
            first = (str(error).strip() or "no message").splitlines()[0]
            raise UserError(f"{name} cannot become a cross-encoder ({type(error).__name__}: {first})") from error
        _check_length(model[0], recipe)
        if recipe.lora.targets:
            _adapt(model[0].model, recipe)
    _pad(model)
    return model, "the base's own" if str(kinds[0]).endswith("ForSequenceClassification") else "new"


def _adapt(network: Any, recipe: Recipe) -> None:
    """Add an adapter; the head, which is small and may be new, is trained whole."""
    import torch
    from peft import LoraConfig

    layers = [name for name, layer in network.named_modules() if isinstance(layer, torch.nn.Linear)]
    inside = f"{network.base_model_prefix}."
    building.check_targets(recipe, layers)
    building.check_rank(recipe, network)
    network.add_adapter(
        LoraConfig(
            r=recipe.lora.rank,
            lora_alpha=recipe.lora.alpha,
            lora_dropout=recipe.lora.dropout,
            target_modules=list(recipe.lora.targets),
            exclude_modules=[name for name in layers if not name.startswith(inside)] or None,
        )
    )
    for name, weight in network.named_parameters():
        if not name.startswith(inside):
            weight.requires_grad_(requires_grad=True)


def _check_length(transformer: Any, recipe: Recipe) -> None:
    """Refuse a length at which nothing is read, or for which the base has no positions."""
    from obliq_models.encoders.sentence import positions
    from obliq_train.reading import check_length

    check_length("model.document_length", recipe.model.document_length, transformer.tokenizer, pair=True)
    most = positions(transformer)
    if most is not None and recipe.model.document_length > most:
        raise UserError(
            f"model.document_length is {recipe.model.document_length:,}, and {recipe.model.base} has {most:,} "
            "positions for query and document together"
        )


def _pad(model: Any) -> None:
    """Tell the network which token is padding; a head reads the last token before it."""
    config = model[0].model.config
    if getattr(config, "pad_token_id", None) is None:
        config.pad_token_id = model.tokenizer.pad_token_id


def _prompts(rows: Sequence[Row], tasks: Mapping[str, str]) -> dict[str, str]:
    """Return what stands before the queries of each task: what its rows say, or else its lens.

    Raises:
        UserError: If the rows of a task say several things.
    """
    from obliq_train import lenses

    known = {lens.task: lens.instruction for lens in map(lenses.load, lenses.names()) if lens.task}
    said: dict[str, set[str]] = {}
    for row in rows:
        if task := tasks.get(row.source, ""):
            said.setdefault(task, set()).update({row.query.instruction} - {""})
    for task, several in said.items():
        if len(several) > 1:
            raise UserError(
                f"the rows of {task} have {len(several)} instructions, and one is put before its queries afterwards: "
                "write them with one --instruction"
            )
    found = {task: next(iter(own), known.get(task, "")) for task, own in said.items()}
    return {task: told(Passage(text, "")) for task, text in found.items() if text}


def _write(
    output: Path, recipe: Recipe, model: Any, found: list[curves.Point], facts: Mapping[str, Any], base: str
) -> None:
    """Write the reranker's folder, whole or not at all."""
    from obliq_train.merge import fold

    if recipe.lora.targets:
        fold(model, building.DTYPES[recipe.run.precision])
    with whole_folder(output) as part:
        with outputs.saving(output):
            model.save_pretrained(str(part), create_model_card=False)
        known = {**facts, "weights": {file.name: sha256(file) for file in sorted(part.glob("*.safetensors"))}}
        told = _card(recipe, known, model.prompts or {}, base, output.name)
        outputs.describe(part, recipe, found, known, told)


def _card(recipe: Recipe, facts: Mapping[str, Any], prompts: Mapping[str, str], base: str, name: str) -> str:
    counts = facts["texts"]
    instructions = "\n".join(f"- {task}: {json.dumps(text, ensure_ascii=False)}" for task, text in prompts.items())
    return f"""---
base_model: {json.dumps(base)}
library_name: sentence-transformers
pipeline_tag: text-ranking
tags: [sentence-transformers, cross-encoder, reranker, obliq]
---

# {name}

{recipe.purpose}

A cross-encoder on {base} ({facts["head"]} head), trained for {facts["steps"]:,} steps on {counts["rows"]:,} lists with
{counts["documents"]:,} documents; the last loss was {card.number(facts["loss"])}. {OBJECTIVE}. It reads up to
{recipe.model.document_length} tokens of query and document together; {counts.get("truncated pairs", 0):,} pairs were
longer. Rows: SHA-256 {facts["rows"]["sha256"]}.

`obliq run -t TASK -m RETRIEVER+{name}` reranks with it. Before the queries of a task stands, saved in
`config_sentence_transformers.json`:

{instructions or "nothing"}

- Licence: {recipe.licence or "not stated"}
- Risk: {recipe.risk or "it brings together texts that share what neither of them says"}
"""
