"""Submissions on disk: what a system is, its runs, and what each query scored."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from pydantic import TypeAdapter, ValidationError

from obliq_eval.data.official import OFFICIAL
from obliq_eval.data.sources import MINI
from obliq_eval.errors import UserError, near, raise_all
from obliq_eval.leaderboard.entries import MEASURES, Exposure
from obliq_eval.manifest import Manifest, Who
from obliq_eval.metrics import Panel
from obliq_eval.runs import MANIFEST, RUN, StoredRun
from obliq_eval.toml import read_toml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

ABOUT, SCORES = "submission.toml", "scores.json"
__all__ = [
    "ABOUT", "FOLDERS", "MANIFEST", "RUN", "SCORES", "About", "Submitted", "load_submissions", "parsed", "read_about",
]  # fmt: skip
FOLDERS = {"submissions": tuple(OFFICIAL), "mini": tuple(MINI)}
"""Folders of a leaderboard with the tasks that each may hold: official and mini runs are never in one."""
LONGEST = 2000  # characters of a description
_T = TypeVar("_T")
_LINK = re.compile(r"https?://[^\s<>\"'`\\|()\[\]{}]+")


@dataclass(frozen=True)
class About:
    """What `submission.toml` says about a system.

    Args:
        system: Its name: an alias or a full name.
        description: What it is, in a few sentences.
        licence: Licence of its weights or code.
        label: Name as shown; by default `system`.
        links: Addresses with more about it.
        ran_by: Who ran it: `submitter`, `us` (this project) or `paper` (the authors of the system's paper).
        oracle: Whether it is shown judgments.
        exposure: What it had seen of the tasks before; absent where nobody says.
    """

    system: str
    description: str
    licence: str
    label: str = ""
    links: tuple[str, ...] = ()
    ran_by: Who = "submitter"
    oracle: bool = False
    exposure: Exposure = field(default_factory=Exposure)

    @property
    def slug(self) -> str:
        """Name of the submission's folder."""
        return re.sub(r"[^a-z0-9.-]+", "-", self.system.lower()).strip("-.")[:60]

    def problems(self) -> Iterator[str]:
        """Yield what is missing or cannot be shown, one sentence each."""
        for name in ("system", "description", "licence"):
            if not getattr(self, name).strip():
                yield f"the {name} is missing; state it in {ABOUT} or with --{name}"
        if self.system.strip() and not self.slug:
            yield f"the system {self.system!r} needs a Latin letter or digit in its name: its folder is named by it"
        for name in ("system", "label", "licence", "description"):
            value = getattr(self, name)
            if not all(c.isprintable() or (c == "\n" and name == "description") for c in value):
                yield f"the {name} holds control characters; write it as plain text"
            if len(value) > (limit := LONGEST if name == "description" else 100):
                yield f"the {name} has {len(value):,} characters; at most {limit:,} are shown"
        for link in self.links:
            if not _LINK.fullmatch(link):
                yield f"the link {link!r} is not a plain http:// or https:// address"

    def to_toml(self) -> str:
        """Return the content of `submission.toml`."""
        fields: dict[str, Any] = {
            "system": self.system, "label": self.label, "description": self.description, "licence": self.licence,
            "links": list(self.links), "ran_by": self.ran_by, "oracle": self.oracle,
        }  # fmt: skip
        lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in fields.items() if value != ""]
        known = {key: value for key, value in vars(self.exposure).items() if value is not None}
        lines += ["", "[exposure]", *(f"{key} = {json.dumps(value)}" for key, value in known.items())] if known else []
        return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Submitted:
    """One run of a submission.

    Args:
        about: The system.
        folder: Holds `run.parquet`, `manifest.json` and `scores.json`.
        manifest: What made the run.
        panels: `{judgments: panel}`: what each query scored when the run was added.
    """

    about: About
    folder: Path
    manifest: Manifest
    panels: Mapping[str, Panel]

    @property
    def stored(self) -> StoredRun:
        """The run, read and checked against its manifest."""
        return StoredRun(self.folder, self.manifest)


@dataclass(frozen=True)
class _Scored:
    """One set of judgments in `scores.json`; the fields are those of `Panel`."""

    queries: tuple[str, ...]
    values: dict[str, tuple[float, ...]]
    unanswered: tuple[str, ...]
    unjudgeable: tuple[str, ...]
    unknown: int
    judged_at_10: float | None
    unjudged_at_10: int


@dataclass(frozen=True)
class _Scores:
    """The content of `scores.json`."""

    content: str
    judgments: dict[str, _Scored]


def read_about(path: Path) -> About:
    """Read `submission.toml`; `About.problems` says what is wrong with its content.

    Raises:
        UserError: If it cannot be read, is not TOML, or has a field that is unknown or of a wrong type.
    """
    fields = read_toml(path)
    if unknown := sorted(fields.keys() - About.__dataclass_fields__.keys()):
        raise UserError(f"{path}: unknown field {unknown[0]!r}; the fields are {', '.join(About.__dataclass_fields__)}")
    exposure = fields.get("exposure")
    known = tuple(Exposure.__dataclass_fields__)
    if isinstance(exposure, dict) and (unknown := sorted(exposure.keys() - set(known))):
        raise UserError(
            f"{path}: unknown field {unknown[0]!r} in [exposure]{near(unknown[0], known)}; "
            f"the fields are {', '.join(known)}"
        )
    blank = {"system": "", "description": "", "licence": ""}
    try:
        return TypeAdapter(About).validate_python(blank | fields)
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def load_submissions(root: Path) -> Iterator[Submitted]:
    """Yield every run of a leaderboard's submissions, in the order of their folders' names.

    Raises:
        UserError: If a submission is damaged, says too little, has no `submission.toml`, stands in a folder that is not
            named by its system, or holds a task that does not belong in its folder.
    """
    for kind, tasks in FOLDERS.items():
        for folder in _folders(root / kind):
            if not (folder / ABOUT).is_file():
                if any(next(folder.rglob(name), None) for name in (MANIFEST, RUN)):
                    raise UserError(f"{folder} holds a run, but no {ABOUT} says of which system; add it again")
                continue
            about = read_about(folder / ABOUT)
            raise_all(list(about.problems()), str(folder / ABOUT))
            if folder.name != about.slug:
                raise UserError(
                    f"{folder} is about the system {about.system!r}, whose folder is named {about.slug!r}; rename it"
                )
            for path in _folders(folder):
                if path.name not in tasks:
                    raise UserError(f"{path} is not one of {', '.join(tasks)}, the tasks of {root / kind}; take it out")
                yield _read(about, path)


def _folders(parent: Path) -> list[Path]:
    """Return the folders in a folder that are not hidden, by name; none if it is not there."""
    if not parent.is_dir():
        return []
    return sorted(path for path in parent.iterdir() if path.is_dir() and not path.name.startswith("."))


def _read(about: About, folder: Path) -> Submitted:
    manifest = parsed(folder / MANIFEST, _manifest, "add it again")
    scores = parsed(folder / SCORES, lambda text: _scores(text, manifest.content), "add it again")
    panels = {name: _panel(scored, manifest.depth) for name, scored in scores.judgments.items()}
    if manifest.task != folder.name:
        raise UserError(f"submission {folder} holds a run for {manifest.task}; add it again")
    return Submitted(about, folder, manifest, panels)


def scores_text(panels: Mapping[str, Panel], content: str) -> str:
    """Return what `scores.json` holds: the values of each query at full precision.

    Args:
        panels: `{judgments: panel}`.
        content: Hash of the run that they belong to.
    """
    judgments = {
        name: {
            "queries": panel.queries,
            "values": {measure: values.tolist() for measure, values in panel.values.items()},
            "unanswered": panel.unanswered,
            "unjudgeable": panel.unjudgeable,
            "unknown": panel.unknown,
            "judged_at_10": panel.judged_at_10,
            "unjudged_at_10": panel.unjudged_at_10,
        }
        for name, panel in panels.items()
    }
    return json.dumps({"content": content, "judgments": judgments}, ensure_ascii=False, separators=(",", ":")) + "\n"


def parsed(path: Path, parse: Callable[[str], _T], remedy: str) -> _T:
    """Read one file of JSON; whatever is wrong with it becomes one sentence that names it.

    Args:
        path: The file.
        parse: Makes something of its text.
        remedy: What to do about a file that is not there or damaged.

    Raises:
        UserError: If it is one of these.
    """
    try:
        return parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror or error}); {remedy}") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "content"
        raise UserError(f"{path} is damaged ({place}: {first['msg']}); {remedy}") from error
    except RecursionError as error:
        raise UserError(f"{path} is damaged (nested too deeply); {remedy}") from error
    except (ValueError, TypeError) as error:
        raise UserError(f"{path} is damaged ({error}); {remedy}") from error


def _manifest(text: str) -> Manifest:
    """Read a manifest without taking a text for a number."""
    manifest = Manifest.from_json(text)
    TypeAdapter(Manifest).validate_json(text, strict=True)
    if manifest.seconds is not None and not 0 <= manifest.seconds < math.inf:
        raise ValueError(f"seconds is {manifest.seconds}, not a length of time")
    if not all(math.isfinite(mean) for means in manifest.scores.values() for mean in means.values()):
        raise ValueError("scores holds what is not a finite number")
    return manifest


def _scores(text: str, content: str) -> _Scores:
    """Read what `scores_text` writes about the run with this hash."""
    scores = TypeAdapter(_Scores).validate_json(text, strict=True)
    if scores.content != content:
        raise ValueError(f"it belongs to another run than {MANIFEST}")
    if "gold" not in scores.judgments:
        raise ValueError("judgments lacks gold")
    for name, scored in scores.judgments.items():
        if not scored.queries or len(set(scored.queries)) != len(scored.queries):
            raise ValueError(f"{name}: queries is empty or names one twice")
        if missing := [measure for measure in MEASURES if measure not in scored.values]:
            raise ValueError(f"{name}: values lacks {', '.join(missing)}")
        for measure, row in scored.values.items():
            if len(row) != len(scored.queries) or not all(map(math.isfinite, row)):
                raise ValueError(
                    f"{name}: {measure} does not have one number for each of {len(scored.queries)} queries"
                )
        if scored.judged_at_10 is not None and not math.isfinite(scored.judged_at_10):
            raise ValueError(f"{name}: judged_at_10 is not a finite number")
    return scores


def _panel(scored: _Scored, depth: int) -> Panel:
    values = {measure: np.array(row, np.float64) for measure, row in scored.values.items()}
    for row in values.values():
        row.setflags(write=False)
    return Panel(
        queries=scored.queries,
        values=values,
        depth=depth,
        unanswered=scored.unanswered,
        unjudgeable=scored.unjudgeable,
        unknown=scored.unknown,
        judged_at_10=scored.judged_at_10,
        unjudged_at_10=scored.unjudged_at_10,
    )
