"""Files from the hub at a pinned commit, with every failure told in one sentence."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

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
    # ValueError: what a setting holds that the client cannot read, such as a proxy's address
    kinds = cast("tuple[type[Exception], ...]", (OSError, ValueError, EntryNotFoundError, http_error, *also))
    with setting_errors():
        try:
            yield
        except kinds as error:
            raise UserError(_sentence(list(_chain(error)), repository, revision)) from error


@contextmanager
def setting_errors() -> Iterator[None]:
    """Turn any exception into a sentence about the hub client's settings if one of them is malformed.

    Raises:
        UserError: In place of an exception that such a setting explains.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if wrong := wrong_setting():
            raise UserError(wrong) from error
        raise


def wrong_setting() -> str | None:
    """Return which setting of the hub's client is malformed, or `None`; it is not repeated, for it may be secret."""
    endpoint = os.environ.get("HF_ENDPOINT")
    if endpoint is not None and not _is_address(endpoint):
        return "HF_ENDPOINT is not the address of a hub, such as https://host:8080: correct it or unset it"
    for name in ("HF_HUB_ETAG_TIMEOUT", "HF_HUB_DOWNLOAD_TIMEOUT"):
        if (seconds := os.environ.get(name)) and not seconds.isdecimal():
            return f"{name} is not a whole number of seconds: correct it or unset it"
    import huggingface_hub

    try:
        token = huggingface_hub.get_token() or ""
    except (OSError, ValueError):
        return None
    if not token.isascii():
        return "the hub's token holds a character that no token has: set HF_TOKEN, or log in to the hub, again"
    return None


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("idna").decode()
        named = parts.port is None or parts.port > 0
    except ValueError:  # UnicodeError among them
        return False
    return parts.scheme in {"http", "https"} and host != "" and named and not set(host) & set(" \t\r\n")


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
    if wrong := wrong_setting():
        return wrong
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
