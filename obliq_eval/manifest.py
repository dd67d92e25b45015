"""What made a run: the manifest beside each stored run, and the fingerprint of everything that can change it."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import re
import sys
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from obliq_eval.oracles import saw_judgments
from obliq_eval.records import Coverage  # noqa: TC001 -- pydantic reads the annotation

Who = Literal["paper", "us", "submitter"]

PACKAGES = ("obliq", "mteb", "numpy", "torch", "transformers", "sentence-transformers", "bm25s", "peft", "vllm")


@dataclass(frozen=True)
class Data:
    """The data that was searched.

    Args:
        name: Name of the task's data, or of the folder.
        revision: Commit of the source, or the hash of its content; None if not known.
        source: Where it came from: `hub`, `folder`, `beir`, `mirror`, `mini`, or `import` for a run from elsewhere.
        exclusions: SHA-256 of the exclusions that were applied; empty if there were none, or if not known.
    """

    name: str
    revision: str | None
    source: str
    exclusions: str = ""


@dataclass(frozen=True)
class Model:
    """The system that was run.

    Args:
        name: Full name, `organisation/model`.
        revision: Its revision; None if not known.
        settings: Whatever else changes its answers, as JSON values.
        alias: Its short name, if it has one.
    """

    name: str
    revision: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    alias: str | None = None


def now() -> str:
    """Return the time as ISO 8601 in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def versions() -> dict[str, str]:
    """Return the versions of Python and of the installed packages that take part in a search."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def hardware() -> str:
    """Return the machine in words: processor, cores, and the accelerator if torch is loaded and sees one."""
    words = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        words += f", {torch.cuda.device_count()} x {torch.cuda.get_device_name(0)}"
    return words


@dataclass(frozen=True)
class Manifest:
    """What made a run.

    Args:
        task: Name of the task.
        data: The data that was searched.
        model: The system that was run.
        depth: How many documents were asked for.
        n_queries: How many queries were asked.
        coverage: Which of the task's queries these are.
        unanswered: Queries that got no answer.
        counts: Whatever was dropped, cut or repaired, by its name.
        created: ISO 8601 time.
        seconds: How long the search took.
        versions: Versions of the packages involved.
        hardware: The machine, in words.
        who: Who ran it.
        seed: The seed, if one was set.
        scores: `{judgments: {measure: mean}}` at full precision, if the run has been scored: `gold`, and `pooled`.
        run_id: `MODEL_TASK-FINGERPRINT` in characters that are safe in a file name; set when stored.
        content: SHA-256 of the run's content; set when stored.
    """

    task: str
    data: Data
    model: Model
    depth: int
    n_queries: int
    coverage: Coverage = "all"
    unanswered: tuple[str, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    created: str = field(default_factory=now)
    seconds: float | None = None
    versions: dict[str, str] = field(default_factory=versions)
    hardware: str = field(default_factory=hardware)
    who: Who = "us"
    seed: int | None = None
    scores: dict[str, dict[str, float]] = field(default_factory=dict)
    run_id: str = ""
    content: str = ""

    @property
    def fingerprint(self) -> str:
        """The fingerprint of everything in this manifest that can change the run."""
        data, model = self.data, self.model
        return fingerprint(
            self.task, data.revision, model.name, model.revision, model.settings, self.depth, self.coverage,
            data.exclusions, seed=self.seed,
        )  # fmt: skip

    @property
    def oracle(self) -> bool:
        """Whether its system was shown judgments, or reranks the run of one that was."""
        return saw_judgments(self.model.settings)

    @property
    def slug(self) -> str:
        """The run id that follows from this manifest."""
        model, task = _safe(self.model.alias or self.model.name.rpartition("/")[2]), _safe(self.task)
        return f"{model}_{task}-{self.fingerprint}"

    def to_json(self) -> str:
        """Return the manifest as indented JSON; settings that JSON cannot hold become text."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False, default=str) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Read a manifest; keys of later versions are ignored.

        Raises:
            ValueError: If it is not JSON, a field is missing, or one has the wrong type.
        """
        try:
            manifest = TypeAdapter(cls).validate_python(json.loads(text))
        except ValidationError as error:
            first = error.errors()[0]
            raise ValueError(f"{'.'.join(map(str, first['loc'])) or 'content'}: {first['msg']}") from error
        except json.JSONDecodeError as error:
            raise ValueError(f"not JSON ({error})") from error
        datetime.fromisoformat(manifest.created)
        return manifest


def fingerprint(  # noqa: PLR0913 -- each of them can change the run
    task: str,
    data_revision: str | None,
    model_name: str,
    model_revision: str | None,
    settings: dict[str, Any],
    depth: int,
    coverage: str,
    exclusions_sha: str,
    *,
    seed: int | None = None,
) -> str:
    """Return 16 hexadecimal digits over everything that can change a run.

    Args:
        task: Name of the task.
        data_revision: Revision of its data.
        model_name: Full name of the model.
        model_revision: Revision of the model.
        settings: The model's settings, in any order.
        depth: How many documents were asked for.
        coverage: Which queries were asked.
        exclusions_sha: SHA-256 of the exclusions.
        seed: The seed, if one was set.
    """
    parts = [
        task, data_revision, model_name, model_revision, settings, depth, coverage, exclusions_sha, seed,
    ]  # fmt: skip
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]+", "-", name).strip("-.")[:60] or "run"
