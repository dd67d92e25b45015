"""Where a model's files lie: a folder, or a repository on the hub at one commit, settled before a file is read."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import shorten
from typing import Any

from obliq_eval.errors import UserError
from obliq_models.pins import PINS


@dataclass(frozen=True)
class Repository:
    """Files of a model.

    Args:
        place: A folder, or a name on the hub.
        commit: The commit on the hub; None for a folder.
        asked: The commit, branch or tag that was asked for.
    """

    place: str
    commit: str | None = None
    asked: str | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.place}@{self.commit}" if self.commit else self.place

    @property
    def moving(self) -> bool:
        """Whether what was asked for, a branch or nothing at all, may be another commit tomorrow."""
        return self.commit is not None and self.asked != self.commit

    @property
    def given(self) -> dict[str, str]:
        """Return the arguments by which the libraries find exactly these files."""
        return {"revision": self.commit} if self.commit else {}

    def file(self, name: str) -> Path | None:
        """Return the path of one file, fetched if need be, or None if there is none of this name.

        Raises:
            UserError: If the hub cannot be asked and the file is not in its cache.
        """
        if self.commit is None:
            path = Path(self.place) / name
            return path if path.is_file() else None
        from huggingface_hub import constants, hf_hub_download, try_to_load_from_cache
        from huggingface_hub.errors import LocalEntryNotFoundError, RemoteEntryNotFoundError

        known = try_to_load_from_cache(self.place, name, revision=self.commit)
        if known is not None:  # a path, or a mark that the commit has no such file
            return Path(known) if isinstance(known, str) else None
        try:
            return Path(hf_hub_download(self.place, name, revision=self.commit))
        except RemoteEntryNotFoundError:
            return None
        except LocalEntryNotFoundError as error:
            if constants.is_offline_mode():  # what is not in the cache is not there
                return None
            raise UserError(f"{name} of {self} is not in the hub's cache, and the hub cannot be reached") from error
        except Exception as error:  # of the network, of the disk
            known_why = _refused(self.place, self.commit, error)
            raise UserError(known_why or f"cannot fetch {name} of {self}: {_told(error)}") from error

    def has(self, name: str) -> bool:
        """Tell whether there is a file of this name, without fetching it."""
        if self.commit is None:
            return (Path(self.place) / name).is_file()
        from huggingface_hub import constants, file_exists, try_to_load_from_cache

        known = try_to_load_from_cache(self.place, name, revision=self.commit)
        if known is not None or constants.is_offline_mode():
            return isinstance(known, str)
        try:
            return file_exists(self.place, name, revision=self.commit)
        except Exception as error:
            raise UserError(f"cannot ask the hub for the files of {self}: {_told(error)}") from error

    def json(self, name: str) -> dict[str, Any] | list[Any] | None:
        """Return what a JSON file holds, or None if there is none of this name.

        Raises:
            UserError: If it holds no JSON.
        """
        path = self.file(name)
        if path is None:
            return None
        try:
            content = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise UserError(f"cannot read {name} of {self}: {_told(error)}") from error
        if not isinstance(content, dict | list):
            raise UserError(f"cannot read {name} of {self}: it holds neither an object nor a list")
        return content

    def record(self, name: str) -> dict[str, Any]:
        """Return the object that a JSON file holds, an empty one if there is no such file.

        Raises:
            UserError: If it holds something else.
        """
        content = self.json(name)
        if content is not None and not isinstance(content, dict):
            raise UserError(f"cannot read {name} of {self}: it holds no object")
        return content or {}


def settle(place: str, revision: str | None = None, *, path: str | None = None) -> Repository:
    """Return a folder, or a repository of the hub at the commit that a revision stands for now.

    Args:
        place: A name on the hub, or an existing folder with its whole path. A relative path is a name, for a folder
            that happens to lie there must not take the place of a published model.
        revision: A commit, branch or tag of the hub; its default branch if None.
        path: A folder that was named as one, instead; the revision is then nothing of the hub's.

    Raises:
        UserError: If there is neither such a folder nor such a repository or revision, if a folder hides the
            repository from the libraries that load it, or if the hub cannot be reached and has not been asked before.
    """
    folder = _folder(place, path)
    if folder is not None:
        return Repository(folder)
    from huggingface_hub import resolve_revision
    from huggingface_hub.errors import RevisionResolutionError

    try:
        return Repository(place, resolve_revision(place, revision=revision).resolved, revision)
    except RevisionResolutionError as error:
        raise UserError(
            f"the hub cannot be asked which commit of {place} is {revision or 'the newest'}, and no earlier answer is "
            "in its cache: connect once, or give a folder of weights, as -m NAME@FOLDER"
        ) from error
    except Exception as error:  # of the network
        why = _refused(place, revision, error) or f"cannot ask the hub for {place}: {_told(error)}"
        raise UserError(why) from error


def _refused(place: str, revision: str | None, error: Exception) -> str:
    """Return why the hub does not give a repository, where that is all that is wrong; empty otherwise."""
    from huggingface_hub import errors

    if isinstance(error, errors.HFValidationError):
        return f"{place} is neither a folder nor a name on the hub"
    if isinstance(error, errors.GatedRepoError):
        return f"access to {place} is restricted: accept its terms on the hub and log in (hf auth login)"
    if isinstance(error, errors.RepositoryNotFoundError):
        return f"there is no folder {place}, and no repository of this name on the hub"
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{place} has no revision {revision} on the hub"
    return ""


def local_base(told: str, adapter: Path | None = None) -> Path | None:
    """Return the whole path of a base that is a folder; None for what has to be asked of the hub.

    Args:
        told: What a configuration or a user calls the base. The name of a repository that the zoo loads is never that
            of a folder, wherever one is.
        adapter: The adapter's folder; a path may be relative to it.
    """
    if not told or told in PINS:
        return None
    places = [Path(told), *([adapter / told] if adapter is not None else [])]
    return next((place.resolve() for place in places if _is_folder(place)), None)


def _folder(place: str, path: str | None) -> str | None:
    if path is not None:
        if not _is_folder(Path(path)):
            raise UserError(f"there is no folder {path}")
        return path
    if not _is_folder(Path(place)):
        return None
    if not Path(place).is_absolute():
        raise UserError(
            f"the folder {place} in {Path.cwd()} hides the repository of this name on the hub: work from another "
            "folder, or name it with its whole path"
        )
    return place


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a name that is too long
        return False


def _told(error: Exception) -> str:
    return shorten(str(error), 200, placeholder=" …") or type(error).__name__
