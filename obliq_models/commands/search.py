"""`obliq search`: ask an index, once, with a file of queries, or line by line."""

from __future__ import annotations

import sys
from pathlib import Path  # noqa: TC003 -- typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from obliq_eval import show
from obliq_eval.data.files import lines, lines_of, queries_of, read_jsonl
from obliq_eval.errors import UserError, raise_all
from obliq_models.commands import options  # noqa: TC001

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from obliq_models.index import Hit, Index

    Ask = Callable[[Sequence[str]], list[tuple[Hit, ...]]]

app = typer.Typer(add_completion=False)

SNIPPET = 100
PROMPT = "query> "
HELP = """Search an index.

Without TEXT and --queries, queries are read from standard input, one on each line, whose number is the id; on a
terminal each is answered at once, until Ctrl-D. The model is the one that indexed.
"""


@app.command(help=HELP)
def search(
    index: Annotated[Path, typer.Argument(metavar="INDEX", help="A folder that `obliq index` has written.")],
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="The query.")] = None,
    *,
    k: Annotated[int, typer.Option("-k", min=1, help="How many documents.")] = 10,
    exclude: Annotated[
        list[str] | None, typer.Option("--exclude", metavar="ID", help="A document that may not be returned; repeat.")
    ] = None,
    queries: Annotated[
        Path | None,
        typer.Option("--queries", metavar="FILE", help="Queries: .jsonl with _id and text, else one on each line."),
    ] = None,
    ann: Annotated[bool, typer.Option("--ann", help="Use the approximate index.")] = False,
    snippet: Annotated[
        int | None,
        typer.Option(min=1, help="Characters of a text that are shown; by default 100, in JSON all of them."),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="The model that indexed, if it lies elsewhere now.")
    ] = None,
    device: options.Device = None,
    as_json: options.Json = False,
) -> None:
    """Search an index."""
    from obliq_eval.commands.run import quiet

    if text is not None and queries is not None:
        raise UserError("TEXT and --queries exclude each other: give one of them")
    asked = _asked(text, queries)
    quiet(0)
    opened = _open(index, model, device)
    for identifier in exclude or ():  # said before the model is asked anything
        opened.row(identifier)
    if ann:
        _ = opened.graph

    def ask(texts: Sequence[str]) -> list[tuple[Hit, ...]]:
        barred = [exclude] * len(texts) if exclude else ()
        return opened.search(texts, k, excluded=barred, approximate=ann)

    if asked is None:
        _converse(ask, snippet or SNIPPET, as_json=as_json)
        return
    _print(asked, ask(list(asked.values())), snippet, as_json=as_json)
    if opened.inexact:
        show.warn(f"{opened.inexact} queries were searched exactly: the approximate index found too few documents")


def _asked(text: str | None, queries: Path | None) -> Mapping[str, str] | None:
    """Return `{id: text}` of what is asked; None if a person is to be asked line by line."""
    if text is not None:
        if not text.strip():
            raise UserError("the query is empty: say what to look for")
        return {"1": text}
    if queries is None and sys.stdin.isatty():
        return None
    found = _numbered(lines_of(sys.stdin.buffer, "the standard input")) if queries is None else read_queries(queries)
    if not found:
        raise UserError("there is no query: give TEXT, --queries FILE, or one on each line of the standard input")
    return found


def read_queries(path: Path) -> Mapping[str, str]:
    """Return `{id: text}` of a file: JSONL, or one query on each line, whose number is the id.

    Raises:
        UserError: If it cannot be read, an id occurs twice, or a query is empty.
    """
    if path.suffix != ".jsonl":
        return _numbered(lines(path))
    found = queries_of(read_jsonl(path, ("_id", "id")), str(path))
    raise_all([f"query {key!r} is empty" for key, text in found.items() if not text.strip()], str(path))
    return found


def _numbered(found: Iterable[tuple[int, str]]) -> dict[str, str]:
    return {str(number): text.strip() for number, text in found}


def _open(path: Path, model: str | None, device: str | None) -> Index:
    from obliq_models.index_files import read_manifest

    manifest = read_manifest(path)  # before anything heavy is imported
    if sys.stderr.isatty():
        show.say(f"loading {model or manifest.model} …", stderr=True)
    from obliq_models.index import Index

    return Index.open(path, model, device=device)


def _converse(ask: Ask, snippet: int, *, as_json: bool) -> None:
    """Read a query, answer it, and so on; what is wrong with one is told, and the next is read."""
    while True:
        try:
            line = input(PROMPT).strip()
        except EOFError:
            show.say("", stderr=True)
            return
        if not line:
            continue
        try:
            _print({"1": line}, ask([line]), snippet, as_json=as_json)
        except UserError as error:
            show.fail(str(error))


def _print(
    queries: Mapping[str, str], answers: Sequence[tuple[Hit, ...]], snippet: int | None, *, as_json: bool
) -> None:
    if as_json:
        pairs = zip(queries.items(), answers, strict=True)
        show.payload([_record(query, text, hits, snippet) for (query, text), hits in pairs])
        return
    for (query, text), hits in zip(queries.items(), answers, strict=True):
        title = f"{query}: {shorten(text, SNIPPET)}" if len(queries) > 1 else None
        if not hits:
            show.say(f"{title or shorten(text, SNIPPET)}: no document is an answer")
            continue
        rows = [(rank, hit.score, hit.id, shorten(hit.text, snippet or SNIPPET)) for rank, hit in enumerate(hits, 1)]
        show.table(("rank", "score", "id", "text"), rows, title=title)


def _record(query: str, text: str, hits: Sequence[Hit], snippet: int | None) -> dict[str, Any]:
    found = [
        {
            "rank": rank,
            "id": hit.id,
            "score": hit.score,
            "text": hit.text if snippet is None else shorten(hit.text, snippet),
        }
        for rank, hit in enumerate(hits, start=1)
    ]
    return {"query": query, "text": text, "hits": found}


def shorten(text: str, most: int) -> str:
    r"""Return the beginning of a text on one line, at most so many characters.

    >>> shorten("one  two\nthree", 8)
    'one two…'
    """
    line = " ".join(text[: 10 * most + 1_000].split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"
