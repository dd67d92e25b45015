"""Files from the hub at a pinned commit, with every failure told in one sentence."""

from __future__ import annotations

import errno
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from obliq_eval.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator


def snapshot(repository: str, revision: str, folder: str) -> Path:
    """Fetch one folder of a data set repository, or find it in the hub's cache, and return its path.

    With a full cache nothing is fetched, so `HF_HUB_OFFLINE=1` works.

    Args:
        repository: `owner/name`.
        revision: Commit.
        folder: Only files below this folder are fetched.

    Raises:
        UserError: If it cannot be had, with the reason and what to do.
    """
    import huggingface_hub

    with hub_errors(repository, revision):
        root = huggingface_hub.snapshot_download(
            repository, repo_type="dataset", revision=revision, allow_patterns=[f"{folder}/*"]
        )
    path = Path(root) / folder
    if not path.is_dir():
        raise UserError(
            f"{repository} has no folder {folder} at commit {revision[:12]}, or the cache holds only a part of it: "
            "run again with the network, without HF_HUB_OFFLINE"
        )
    return path


@contextmanager
def hub_errors(repository: str, revision: str) -> Iterator[None]:
    """Turn the hub client's exceptions into one sentence each.

    Raises:
        UserError: In place of any of them.
    """
    from huggingface_hub import errors

    at = f"{repository} at commit {revision[:12]}"
    try:
        yield
    except errors.GatedRepoError as error:
        raise UserError(f"{repository} is gated: accept its terms on the hub, then set HF_TOKEN") from error
    except errors.RepositoryNotFoundError as error:
        raise UserError(f"{repository} is not on the hub, or is private: check the name, or set HF_TOKEN") from error
    except errors.RevisionNotFoundError as error:
        raise UserError(f"{repository} has no commit {revision} any more") from error
    except errors.EntryNotFoundError as error:
        raise UserError(f"{at} lacks a file: {_first_line(error)}") from error
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled) as error:
        raise UserError(
            f"{at} is not in the local cache and the hub cannot be reached: connect and unset HF_HUB_OFFLINE, "
            "or copy a cache that holds it"
        ) from error
    except (errors.HfHubHTTPError, ConnectionError, TimeoutError) as error:
        raise UserError(
            f"{at} could not be fetched: {_first_line(error)}; try again, finished files are kept"
        ) from error
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise UserError(f"{at} could not be stored: the disk is full; free space or set HF_HOME") from error
        raise UserError(
            f"{at} could not be fetched: {_first_line(error)}; try again, finished files are kept"
        ) from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
