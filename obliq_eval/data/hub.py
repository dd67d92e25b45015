"""Files from the hub at a pinned commit, with every failure told in one sentence."""

from __future__ import annotations

import errno
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

from obliq_eval.data.official import NEEDED
from obliq_eval.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def snapshot(repository: str, revision: str, folder: str, files: Sequence[str] = NEEDED) -> Path:
    """Fetch files of one folder of a data set repository, or find them in the hub's cache, and return its path.

    A commit pins each file's content, so a file that is in the cache costs no request.

    Args:
        repository: `owner/name`.
        revision: Commit.
        folder: Folder in the repository; empty for its root.
        files: Paths below it, at least one.

    Raises:
        UserError: If one cannot be had, with the reason and what to do.
    """
    import huggingface_hub

    with hub_errors(repository, revision):
        for name in files:
            whole = f"{folder}/{name}".lstrip("/")
            path = Path(huggingface_hub.hf_hub_download(repository, whole, repo_type="dataset", revision=revision))
    return path.parents[name.count("/")]


@contextmanager
def hub_errors(repository: str, revision: str, *also: type[Exception]) -> Iterator[None]:
    """Turn the hub client's exceptions into one sentence each.

    Args:
        repository: What is being read.
        revision: At which commit.
        also: Exceptions of other libraries in which the hub client's may be wrapped.

    Raises:
        UserError: In place of any of them.
    """
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError

    http_error = HfHubHTTPError.__bases__[0]  # of whichever HTTP library this release of the client uses
    kinds = cast("tuple[type[Exception], ...]", (OSError, EntryNotFoundError, http_error, *also))
    try:
        yield
    except kinds as error:
        raise UserError(_sentence(list(_chain(error)), repository, revision)) from error


def _sentence(chain: list[BaseException], repository: str, revision: str) -> str:
    """Say what went wrong, given an exception and what caused it."""
    from huggingface_hub import errors

    at = f"{repository} at commit {revision[:12]}"
    unreachable = (
        f"{at} is not in the local cache and the hub cannot be reached: connect and unset HF_HUB_OFFLINE, "
        "or copy a cache that holds it"
    )
    failed = f"{at} could not be fetched: {_first_line(chain[0])}; try again, finished files are kept"
    if any(isinstance(error, OSError) and error.errno == errno.ENOSPC for error in chain):
        return f"{at} could not be stored: the disk is full; free space or set HF_HOME to another disk"
    told: tuple[tuple[type[BaseException], str], ...] = (
        (errors.GatedRepoError, f"{repository} is gated: accept its terms on the hub, then set HF_TOKEN"),
        (
            errors.RepositoryNotFoundError,
            f"{repository} is not on the hub, or is private: check the name, or set HF_TOKEN",
        ),
        (errors.RevisionNotFoundError, f"{repository} has no commit {revision} any more"),
        (errors.RemoteEntryNotFoundError, f"{at} lacks a file: {_first_line(chain[0])}"),
        (errors.HfHubHTTPError, failed),
        (errors.LocalEntryNotFoundError, unreachable),
        (errors.OfflineModeIsEnabled, unreachable),
    )
    for kind, sentence in told:
        if any(isinstance(error, kind) for error in chain):
            return sentence
    return failed


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
