"""`obliq index`: documents, their vectors and what made them, in one folder that `obliq search` asks."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from obliq_eval import show
from obliq_models.commands import options

if TYPE_CHECKING:
    from obliq_models.index import Index

app = typer.Typer(add_completion=False)

SOURCE = (
    "A task; a folder in the official or BEIR layout (queries are not needed); a folder of .txt and .md files, whose "
    "paths are the ids; or a .jsonl file of objects with _id or id, text, and maybe title."
)
HELP = """Index documents for `obliq search`.

The index is a folder of its own: the documents, the vectors, and what made them. Vectors are taken from the store of
embeddings where they are there, and after a kill the work goes on where it was. A model without vectors (bm25) can be
used as well: it is fitted anew whenever the index is opened.
"""


@app.command(help=HELP)
def index(
    source: Annotated[str, typer.Argument(metavar="TASK|FOLDER|FILE", help=SOURCE)],
    *,
    model: Annotated[str, typer.Option("--model", "-m", help=options.MODEL)],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="INDEX", help="The folder; by default SOURCE.MODEL.index.")
    ] = None,
    ann: Annotated[
        bool, typer.Option("--ann", help="Also build an approximate index, and measure its recall (needs faiss).")
    ] = False,
    storage: Annotated[
        str | None,
        typer.Option(help="How vectors are kept: float32, float16 or bfloat16; by default as the model says."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the index that is in the folder.")] = False,
    device: options.Device = None,
    engine: options.Engine = "local",
    workers: options.Workers = None,
    as_json: options.Json = False,
) -> None:
    """Index documents for `obliq search`."""
    from obliq_eval.commands.run import quiet
    from obliq_models.documents import read_source
    from obliq_models.index_files import check_place
    from obliq_models.loading import absolute, check_storage, load, use_engine
    from obliq_models.naming import find

    quiet(0)
    entry = find(model)
    place = output or Path(f"{Path(source).resolve().stem or 'documents'}.{entry.alias}.index")
    check_place(place, force=force)
    kept = check_storage(storage)
    if ann:
        from obliq_models.ann import library

        library()
    documents = read_source(source)
    for note in documents.notes:
        show.warn(note)
    if entry.risk:
        show.say(f"{entry.alias}: {entry.risk} (licence: {entry.licence})", stderr=True)
    from obliq_models.index import Index  # heavy, so only after the checks

    retriever = load(entry, device)
    if getattr(retriever, "task_prompt", False) or getattr(retriever, "instructions", None):
        show.warn(
            f"{entry.alias} puts a task's prompt before queries; an index has no task, so that `obliq search` puts "
            "none: set query_prefix in a TOML file where it is to put one"
        )
    use_engine(retriever, engine, workers)
    made = Index.build(
        documents.table, retriever, place,
        ann=ann, storage=kept, force=force, source=documents.name, given=absolute(model),
    )  # fmt: skip
    if as_json:
        show.payload(record(made))
    else:
        _tell(made)


def record(index: Index) -> dict[str, Any]:
    """Return what `--json` prints."""
    stored = index.embeddings.store if index.encoder is not None else None
    return {
        "index": str(index.path),
        **asdict(index.manifest),
        "distinct": None if stored is None else stored.distinct,
        "dims": None if stored is None else stored.dims,
        "storage": None if stored is None else stored.storage,
        "bytes": _bytes(index.path),
    }


def _bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def _tell(index: Index) -> None:
    told = index.manifest
    show.say(f"{index.path}: {len(index):,} documents indexed with {told.model} ({options.size(_bytes(index.path))})")
    if index.encoder is None:
        show.say(f"{told.model} has no vectors: it is fitted to the documents whenever the index is opened")
        return
    vectors = index.embeddings
    cut = told.counts.get("truncated document texts", 0)
    show.say(f"{vectors.distinct:,} distinct texts, {vectors.dims:,} dimensions, {vectors.store.storage}")
    if cut:
        lost = told.counts.get("lost document tokens", 0)
        show.warn(f"{cut:,} of the texts are longer than {told.model} reads; {lost:,} tokens of them were not read")
    if told.recall is not None:
        from obliq_models.ann import TARGET

        show.say(
            f"approximate index: recall@10 {told.recall.at_10:.3f} and recall@100 {told.recall.at_100:.3f} against "
            f"exact search, over {told.recall.sample:,} documents as queries"
        )
        if told.recall.at_100 < TARGET:
            show.warn(
                f"that is less than {TARGET}, although it searches as widely as it can: search exactly where it counts"
            )
