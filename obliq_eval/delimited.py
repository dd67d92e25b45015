"""How texts that nobody vouches for stand in a prompt, and how they are found in it again.

Tags carry a nonce that follows from all texts together, so that no text can hold the tag that would close it, and
whatever looks like a tag inside a text is escaped. The same texts always give the same prompt: a random nonce would
make every prompt a new one for a cache.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

Kind = Literal["ranking", "selection"]

_NAMES = r"\s*/?\s*(?:document|query|description)\b"
_TAG = re.compile(rf"<(?={_NAMES})", re.IGNORECASE)
_ESCAPED = re.compile(rf"&(?=(?:amp;)*lt;{_NAMES})", re.IGNORECASE)
_SHOWN = re.compile(r"<document-([0-9a-f]{12})>\n")
_OPENING = re.compile(r"<query-([0-9a-f]{12})>\n")
_WANTED = re.compile(r'\{"(ranking|selection)": \[(?:all|exactly) ([0-9]+) ')


@dataclass(frozen=True)
class Found:
    """What a prompt about numbered documents holds.

    Args:
        query: The query's text, verbatim.
        documents: The documents' texts, verbatim; document number i is at i - 1.
    """

    query: str
    documents: tuple[str, ...]


@dataclass(frozen=True)
class Shown:
    """What a prompt about one document holds.

    Args:
        document: The document's text, verbatim.
        description: What was said about it before, verbatim; empty if nothing.
    """

    document: str
    description: str = ""


@dataclass(frozen=True)
class Wanted:
    """What a prompt asks for: a ranking of `size` documents, or a selection of so many."""

    kind: Kind
    size: int


def delimit(query: str, documents: Sequence[str]) -> str:
    """Return a query and numbered documents between tags, `<document-NONCE id="1">` being the first document's.

    Args:
        query: The query's text.
        documents: The documents' texts; numbers begin at 1.
    """
    texts = json.dumps([query, *documents])
    nonce = hashlib.sha256(texts.encode()).hexdigest()[:12]
    blocks = [f"<query-{nonce}>\n{_escape(query)}\n</query-{nonce}>"]
    blocks += [
        f'<document-{nonce} id="{number}">\n{_escape(text)}\n</document-{nonce}>'
        for number, text in enumerate(documents, 1)
    ]
    return "\n".join(blocks)


def find(prompt: str) -> Found | None:
    """Return what `delimit` put into a prompt, or None if it holds no query between tags."""
    opening = _OPENING.search(prompt)
    if opening is None:
        return None
    nonce = opening[1]
    query = re.compile(rf"<query-{nonce}>\n(.*?)\n</query-{nonce}>", re.DOTALL).search(prompt)
    if query is None:
        return None
    document = re.compile(rf'<document-{nonce} id="[0-9]+">\n(.*?)\n</document-{nonce}>', re.DOTALL)
    return Found(_unescape(query[1]), tuple(map(_unescape, document.findall(prompt))))


def delimit_one(document: str, description: str = "") -> str:
    """Return one document between tags and, if there is one, a description of it between others.

    Args:
        document: The document's text.
        description: What a language model has said about it: no more to be trusted than the document.
    """
    nonce = hashlib.sha256(json.dumps([document, description]).encode()).hexdigest()[:12]
    block = f"<document-{nonce}>\n{_escape(document)}\n</document-{nonce}>"
    if not description:
        return block
    return f"{block}\n<description-{nonce}>\n{_escape(description)}\n</description-{nonce}>"


def find_one(prompt: str) -> Shown | None:
    """Return what `delimit_one` put into a prompt, or None if it holds no such document."""
    opening = _SHOWN.search(prompt)
    if opening is None:
        return None

    def between(name: str) -> str | None:
        tags = rf"<{name}-{opening[1]}>\n(.*?)\n</{name}-{opening[1]}>"
        found = re.search(tags, prompt, flags=re.DOTALL)
        return None if found is None else _unescape(found[1])

    document = between("document")
    return None if document is None else Shown(document, between("description") or "")


def answer_line(kind: Kind, documents: int, size: int | None = None) -> str:
    """Return the line of a prompt that says how to answer; `wanted` reads it.

    Args:
        kind: A ranking of all documents, or a selection.
        documents: How many documents the prompt shows.
        size: How many are to be selected; not for a ranking.
    """
    count = f"all {documents}" if kind == "ranking" else f"exactly {size} of the {documents}"
    return f'Answer with JSON alone: {{"{kind}": [{count} document numbers, each once, the best first]}}'


def wanted(prompt: str) -> Wanted | None:
    """Return what the last `answer_line` of a prompt asks for, or None if it has none."""
    if opening := _OPENING.search(prompt):  # a text between tags asks for nothing
        tags = rf"<(query|document)-{opening[1]}\b.*?\n</\1-{opening[1]}>"
        prompt = re.sub(tags, "", prompt, flags=re.DOTALL)
    found = _WANTED.findall(prompt)
    if not found:
        return None
    kind, size = found[-1]
    return Wanted("ranking" if kind == "ranking" else "selection", int(size))


def _escape(text: str) -> str:
    return _TAG.sub("&lt;", _ESCAPED.sub("&amp;", text))


def _unescape(text: str) -> str:
    return re.sub(
        rf"&((?:amp;)*)lt;(?={_NAMES})",
        lambda match: "&" + match[1].removeprefix("amp;") + "lt;" if match[1] else "<",
        text,
        flags=re.IGNORECASE,
    )
