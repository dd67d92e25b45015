"""The repository of the authors' runs at one commit, file by file, so that nothing huge is fetched unasked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from obliq_eval import show
from obliq_eval.data.hub import hub_errors
from obliq_eval.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Mapping

REPOSITORY = "DataScience-UIBK/OBLIQ-IR-Data"
LICENCE = "CC-BY-NC-4.0"
MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Fetched:
    """A copy of a repository.

    Args:
        folder: Where its files are.
        revision: Its commit; None for a folder of the user's.
        left: `{path: reason}` for what was not fetched.
    """

    folder: Path
    revision: str | None
    left: Mapping[str, str]


def fetch(source: str, revision: str | None = None, max_megabytes: int = 2_000) -> Fetched:
    """Fetch a data set repository into the hub's cache, or take a folder as it is.

    Args:
        source: `owner/name`, or a folder.
        revision: Commit, branch or tag; by default the newest commit.
        max_megabytes: Files larger than this are left.

    Raises:
        UserError: If it cannot be had, or holds no file.
    """
    if Path(source).is_dir():
        return Fetched(Path(source), None, {})
    import huggingface_hub

    with hub_errors(source, revision or "main"):
        info = huggingface_hub.HfApi().dataset_info(source, revision=revision, files_metadata=True)
        commit = info.sha or revision or "main"
        sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}
        left = {
            name: f"not fetched: {size / MEGABYTE:,.0f} MB, more than --max-mb {max_megabytes}"
            for name, size in sizes.items()
            if size > max_megabytes * MEGABYTE
        }
        folder = None
        for name in show.track([name for name in sizes if name not in left], "fetching", None):
            path = Path(huggingface_hub.hf_hub_download(source, name, repo_type="dataset", revision=commit))
            folder = path.parents[name.count("/")]
    if folder is None:
        raise UserError(f"{source} at {commit[:12]} holds no file of at most {max_megabytes} MB")
    return Fetched(folder, commit, left)
