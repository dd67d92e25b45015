"""The authors' own training rows, from their data set on the hub: CC-BY-NC-4.0, not for commercial use.

How the repository is laid out is not known beforehand, so rows are recognised by their form: every `.jsonl` file is
looked into whose path does not say that it holds something else, and whose first line is a row of either shape.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from obliq_eval import show
from obliq_eval.data.files import lines
from obliq_eval.data.hub import hub_errors
from obliq_eval.errors import UserError
from obliq_eval.jsonl import value_of
from obliq_train.rows import Row

if TYPE_CHECKING:
    from collections.abc import Mapping

REPOSITORY = "DataScience-UIBK/OBLIQ-IR-Data"
LICENCE = "CC-BY-NC-4.0"
ELSE = ("qrels", "corpus", "corpora", "run", "runs", "results")
"""Words of a path whose file is never fetched: judgments above all, which no training code may see."""


@dataclass(frozen=True)
class Fetched:
    """Files of rows from a repository, or from a folder in the same form.

    Args:
        files: `{path in the repository: file}`.
        revision: Commit; None for a folder.
        left: `{path: reason}` for the files that hold no rows, or were not fetched.
    """

    files: Mapping[str, Path]
    revision: str | None
    left: Mapping[str, str]


def fetch(source: str = REPOSITORY, revision: str | None = None) -> Fetched:
    """Fetch the files of rows of a data set repository into the hub's cache.

    Args:
        source: `owner/name`, or a folder.
        revision: Commit, branch or tag; by default the newest commit.

    Raises:
        UserError: If it cannot be had, or holds no file of rows.
    """
    commit: str | None = None
    if Path(source).is_dir():
        names = sorted(path.relative_to(source).as_posix() for path in Path(source).rglob("*") if path.is_file())
        found, left = _chosen(names)
        files = {name: Path(source) / name for name in found}
    else:
        import huggingface_hub

        with hub_errors(source, revision or "main"):
            info = huggingface_hub.HfApi().dataset_info(source, revision=revision)
            commit = info.sha or revision or "main"
            found, left = _chosen(sorted(file.rfilename for file in info.siblings or ()))
            files = {
                name: Path(huggingface_hub.hf_hub_download(source, name, repo_type="dataset", revision=commit))
                for name in show.track(found, "fetching")
            }
    rows = {name: path for name, path in files.items() if _holds_rows(path)}
    left |= dict.fromkeys(files.keys() - rows.keys(), "its first line is no training row")
    if not rows:
        raise UserError(f"{source} holds no .jsonl file of training rows ({len(left):,} other files)")
    return Fetched(rows, commit, left)


def _chosen(names: list[str]) -> tuple[list[str], dict[str, str]]:
    left = {name: reason for name in names if (reason := _not_rows(name))}
    return [name for name in names if name not in left], left


def _not_rows(name: str) -> str:
    path = PurePosixPath(name.lower())
    words = {
        word for part in path.parts for word in part.replace(".", "_").replace("-", "_").replace("+", "_").split("_")
    }
    if path.suffix != ".jsonl":
        return "no .jsonl file"
    held = sorted(words & set(ELSE))
    return f"not fetched: its path says {held[0]}" if held else ""


def _holds_rows(path: Path) -> bool:
    try:
        first = next(lines(path), None)
        Row.of(None if first is None else value_of(first[1]))
    except (UserError, ValueError):
        return False
    return True
