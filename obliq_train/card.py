"""The model card of an adapter: what it is, what it was trained on, what it scores, how to load it, its risk."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obliq_eval.catalogue import catalogue
from obliq_eval.show import UNKNOWN
from obliq_train.serving import named

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from obliq_train.recipe import Recipe

TAGS = ("sentence-transformers", "sentence-similarity", "feature-extraction", "peft", "lora", "obliq")
RISK = (
    "It brings texts together that share what neither of them says. Trained on signals of style it can be used to "
    "guess who wrote a text; do not use it to unmask people."
)
_TABLES = ("model", "lora", "loss", "batch", "schedule", "run", "negatives", "leave_out", "evaluation")


def text(recipe: Recipe, facts: Mapping[str, Any], name: str, base: str) -> str:
    """Return the card, Markdown behind YAML front matter.

    Args:
        recipe: The recipe.
        facts: Content of `training.json`.
        name: What the adapter is called: the name of its folder.
        base: What the adapter calls its base.
    """
    sections = {
        "What it is": _about(recipe, facts, base),
        "How to load it": _loading(recipe, name),
        "What it was trained on": _data(recipe, facts),
        "Scores": _scores(facts),
        "Recipe": _recipe(recipe),
        "Licence": _licence(recipe, base),
        "Risk": recipe.risk or RISK,
        "Made with": _made(facts),
    }
    body = "\n\n".join(f"## {title}\n\n{content}" for title, content in sections.items())
    return f"{_front(recipe, name, base)}\n# {name}\n\n{recipe.purpose}\n\n{body}\n"


def _front(recipe: Recipe, name: str, base: str) -> str:
    """Return the front matter; JSON strings are YAML strings."""
    fields: dict[str, Any] = {
        "base_model": base,
        "base_model_relation": "adapter",
        "library_name": "sentence-transformers",
        "pipeline_tag": "sentence-similarity",
        **front_terms(recipe.licence),
        "model_name": name,
        "tags": list(TAGS),
    }
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in fields.items() if value is not None]
    return "\n".join(["---", *lines, "---", ""])


def _about(recipe: Recipe, facts: Mapping[str, Any], base: str) -> str:
    model, lora = recipe.model, recipe.lora
    return (
        f"A LoRA adapter of rank {lora.rank} on {base}, whose own weights are unchanged: {model.pooling} pooling, "
        f"{'vectors of unit length' if model.normalize else 'vectors as they come'}. "
        f"{prefixes(model.query_prefix, model.document_prefix)}; queries are read up to {model.encode_query_length} "
        f"tokens, documents up to {model.encode_document_length}. All of it is saved with the adapter. It was trained "
        f"for {facts['steps']:,} steps; the last loss was {number(facts['loss'])} (`curves.svg`)."
    )


def prefixes(query: str, document: str) -> str:
    """Return what is put before queries and documents, as a sentence that may go on."""
    if not query and not document:
        return "Nothing is put before queries and documents"
    told = [json.dumps(prefix, ensure_ascii=False) if prefix else "nothing" for prefix in (query, document)]
    return f"Before a query stands {told[0]}, before a document {told[1]}"


def _loading(recipe: Recipe, name: str) -> str:
    trust = ", trust_remote_code=True" if recipe.model.trust_remote_code else ""
    note = "  # the prefix is put before it here" if recipe.model.query_prefix else ""
    told, file = named(recipe, Path(name))
    beside = f", where `{told}` beside this folder holds:\n\n```toml\n{file}```" if file else "."
    return (
        f"`{name}` is this folder; its base is read or fetched from where `adapter_config.json` says. "
        f"`obliq merge {name} -o FOLDER` makes a model that needs neither.\n\n"
        "```python\n"
        "from sentence_transformers import SentenceTransformer\n\n"
        f'model = SentenceTransformer("{name}"{trust})\n'
        f'queries = model.encode_query(["…"]){note}\n'
        'documents = model.encode_document(["…"])\n'
        "```\n\n"
        f"or `obliq run -t TASK -m {told}`{beside}"
    )


def _data(recipe: Recipe, facts: Mapping[str, Any]) -> str:
    rows = facts["rows"]
    parts = [
        (part.name, part.task, _source(part), part.positives if part.teacher else "", _count(rows["parts"], part.name))
        for part in recipe.used
    ]
    told = [
        _table(("part", "task", "made of", "positives", "rows"), parts) + "\n" if parts else "",
        f"{sum(rows['parts'].values()):,} rows{_read(recipe, facts)}, SHA-256 of the file {rows['sha256']}.\n",
        *_bullets({f"edges of {name}": f"SHA-256 {value}" for name, value in rows["edges"].items()}),
        *_bullets({what: count for what, count in {**rows["counts"], **facts["texts"]}.items() if count}),
    ]
    return "\n".join(line for line in told if line)


def _read(recipe: Recipe, facts: Mapping[str, Any]) -> str:
    """Return how many anchors the steps had; a row that is read twice counts twice."""
    anchors = facts["steps"] * recipe.batch.per_device * recipe.batch.accumulation * facts["processes"]
    return f" ({anchors:,} anchors in {facts['steps']:,} steps)"


def _source(part: Any) -> str:
    if part.teacher:
        dose = "" if part.dose is None else f", dose {part.dose:,}"
        return f"nearest neighbours by {part.teacher} (frozen), k = {part.k}{dose}"
    return "sentences and what stands around them" if part.sentences else (part.file.rpartition("/")[2] or "rows")


def _count(parts: Mapping[str, int], name: str) -> str:
    return f"{parts.get(name, 0):,}"


def _scores(facts: Mapping[str, Any]) -> str:
    if measured := facts.get("scores"):  # entered by whoever publishes it
        rows = [
            (one["task"], one["queries"], one["n"], *map(number, _pair(one)), *map(number, _pair(one["base"])))
            for one in measured
        ]
        columns = ("task", "queries", "n", "NDCG@10", "Recall@100", "its base: NDCG@10", "Recall@100")
        return "Measured after training, gold judgments:\n\n" + _table(columns, rows)
    if not facts["dev"]:
        return "None were measured in training."
    tasks = list(dict.fromkeys(task for scores in facts["dev"].values() for task in scores))
    rows = [(step, *(number(scores.get(task)) for task in tasks)) for step, scores in facts["dev"].items()]
    return (
        "NDCG@10 over **dev queries alone**, on which settings may be chosen; no test query was asked in training. "
        "Step 0 is the base.\n\n" + _table(("step", *tasks), rows)
    )


def _pair(scores: Mapping[str, float]) -> tuple[float, float]:
    return scores["ndcg@10"], scores["recall@100"]


def number(value: float | None) -> str:
    """Return a figure with four decimals, or the mark of one that is not known."""
    return UNKNOWN if value is None else f"{value:.4f}"


def _recipe(recipe: Recipe) -> str:
    told = recipe.model_dump(mode="json")
    rows = [
        (f"{table}.{key}", json.dumps(value, ensure_ascii=False), recipe.sources.get(f"{table}.{key}", ""))
        for table in _TABLES
        for key, value in told[table].items()
        if value not in (None, [], ())
    ]
    shown = 3 if any(source for _, _, source in rows) else 2
    table = _table(("key", "value", "source")[:shown], [row[:shown] for row in rows])
    return f"`recipe.toml` ({recipe.name}), resolved:\n\n{table}"


def front_terms(licence: str) -> dict[str, str]:
    """Return a licence as the hub has it: an identifier, such as begins most sentences about one, or a name."""
    name = licence.partition(";")[0].strip()
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]*", name):
        return {"license": name.lower()}
    return {"license": "other", "license_name": licence} if licence else {}


def _licence(recipe: Recipe, base: str) -> str:
    own = recipe.licence or "none is stated; ask whoever trained it"
    terms = base_terms(base) or "as its own card says"
    return f"- The adapter: {own}\n- Its base, {base}, whose terms hold as well: {terms}"


def base_terms(*names: str) -> str:
    """Return the terms of a base, as the table of models states them, or nothing where it does not.

    Args:
        names: What the base may be called, the surest first. What `obliq/X` stands for is known as `anyone/X` too.
    """
    entries = catalogue().values()
    known = {entry.base.partition("@")[0]: entry.base_licence for entry in entries if entry.base_licence}
    known |= {entry.name: entry.licence for entry in entries if entry.licence}
    for name in names:
        own = f"obliq/{name.rpartition('/')[2]}" if name.count("/") == 1 and not name.startswith((".", "/")) else ""
        if terms := known.get(name) or known.get(own):
            return terms
    return ""


def _made(facts: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    devices = f"{facts['processes']} process{'es'[: 2 * (facts['processes'] != 1)]}"
    return "\n".join(
        _bullets(
            {
                "versions": versions,
                "hardware": f"{facts['hardware']}, {devices}",
                "time": f"{facts['seconds']:,.0f} s",
                "seed": facts["seed"],
                "base, by its commit or its files": facts["base"],
                "created": facts["created"],
            }
        )
    )


def _bullets(facts: Mapping[str, Any]) -> Iterator[str]:
    for key, value in facts.items():
        yield f"- {key}: {value:,}" if isinstance(value, int) else f"- {key}: {value}"


def _table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)
