"""Tiny twins of the real models, under the official names, for the loopback hub.

A twin has the real repository's files, formats, code path, tensor names and length of vectors; all other sizes are
tiny and its weights are random, drawn from its name, so that the same call writes the same bytes.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from obliq_eval.demo import twin_llama, twin_models
from obliq_eval.demo.hub import Repo
from obliq_eval.demo.twin_llama import ADAPTER_ID, BASE_ID, MERGED_ID
from obliq_eval.demo.twin_sabotage import SABOTAGE
from obliq_eval.home import whole_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

__all__ = ["ADAPTER_ID", "BASE_ID", "MERGED_ID", "SABOTAGE", "TWINS", "twin_repos", "twin_revision"]


def _named(write: Callable[[Path, str], None], *repo_ids: str) -> dict[str, Callable[[Path], None]]:
    def writer(repo_id: str) -> Callable[[Path], None]:
        return lambda folder: write(folder, repo_id)

    return {repo_id: writer(repo_id) for repo_id in repo_ids}


_WRITERS: dict[str, Callable[[Path], None]] = {
    BASE_ID: twin_llama.write_base,
    ADAPTER_ID: twin_llama.write_adapter,
    MERGED_ID: twin_llama.write_merged,
    **_named(twin_models.write_luar, "rrivera1849/LUAR-MUD", "rrivera1849/LUAR-CRUD"),
    **_named(twin_models.write_qwen, "Qwen/Qwen3-Embedding-0.6B", "Qwen/Qwen3-Embedding-4B"),
    **_named(twin_models.write_late_interaction, "lightonai/LateOn"),
    **_named(
        twin_models.write_style,
        "AnnaWegmann/Style-Embedding",
        "StyleDistance/styledistance",
        "StyleDistance/mstyledistance",
        "AIDA-UPM/star",
    ),
}
TWINS = tuple(_WRITERS)
"""The repositories that have a twin."""


def twin_repos(
    folder: Path,
    *,
    only: Sequence[str] = (),
    broken: Mapping[str, str] | None = None,
    revisions: Mapping[str, str | None] | None = None,
) -> list[Repo]:
    """Write the twins into a folder, each once, and return them as the hub serves them.

    A spoilt twin has the sound one's name and revision. A client's cache tells them apart no better than the real
    hub's would, so give each its own `HF_HOME`.

    Args:
        folder: Where they are kept; a twin that is there already is not written again.
        only: The repositories wanted, of `TWINS`; all of them if empty.
        broken: What is wrong with a repository, of `SABOTAGE`, by repository.
        revisions: Commits by repository, 40 hex digits; `twin_revision` where there is none or `None`.

    Raises:
        ValueError: If there is no such twin or sabotage, or the sabotage makes no sense for it.
    """
    broken, revisions = broken or {}, revisions or {}
    wanted = tuple(only) or TWINS
    if unknown := sorted({*wanted, *broken} - set(TWINS)):
        raise ValueError(f"no twin of {', '.join(unknown)}; there are {', '.join(TWINS)}")
    if unknown := sorted(set(broken.values()) - set(SABOTAGE)):
        raise ValueError(f"no sabotage {', '.join(unknown)}; there is {', '.join(SABOTAGE)}")
    return [
        Repo("model", name, _written(folder, name, broken.get(name, "")), revisions.get(name) or twin_revision(name))
        for name in wanted
    ]


def twin_revision(repo_id: str) -> str:
    """Return a made-up commit for a repository whose real one is not known."""
    return hashlib.sha1(repo_id.encode(), usedforsecurity=False).hexdigest()


def _written(folder: Path, repo_id: str, sabotage: str) -> Path:
    name = "--".join((*repo_id.split("/"), *sabotage.split()))
    place = folder / name
    if not place.is_dir():
        with whole_folder(place) as part:
            _WRITERS[repo_id](part)
            if sabotage:
                SABOTAGE[sabotage](part)
            card = "---\nlibrary_name: transformers\n---\n\nA tiny model with random weights, for tests.\n"
            (part / "README.md").write_text(card, "utf-8")
    return place
