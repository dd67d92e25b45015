"""A cross-encoder out of a folder: it puts before a query what its folder says of the task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mteb.models import CrossEncoderWrapper, ModelMeta

from obliq_eval.errors import UserError
from obliq_models.derived import check_folder, fingerprint
from obliq_models.repositories import Repository
from obliq_models.retrievers.guards import pickle_problems

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class TaskConditional(CrossEncoderWrapper):
    """A cross-encoder with an instruction for each task, saved as sentence-transformers saves prompts by name.

    Args:
        model: sentence-transformers' `CrossEncoder`.
        name: What it is called.
        revision: Hash of its folder.
    """

    def __init__(self, model: Any, name: str, revision: str) -> None:
        super().__init__(model)
        self.mteb_model_meta = ModelMeta.create_empty({"name": name, "revision": revision})

    def predict(self, inputs1: Any, inputs2: Any, *, task_metadata: Any = None, **kwargs: Any) -> Any:
        """Return one score for each pair; see mteb's `CrossEncoderWrapper`."""
        task = "" if task_metadata is None else str(task_metadata.name)
        prompt = instruction(self.model.prompts or {}, task)
        told: dict[str, Any] = {"prompt": prompt} if prompt else {}
        return super().predict(inputs1, inputs2, task_metadata=task_metadata, **told, **kwargs)


def instruction(prompts: Mapping[str, str], task: str) -> str:
    """Return what stands before the queries of a task; of a mini task, what stands before those of the official one.

    >>> instruction({"OBLIQ-Math": "Find proofs alike: "}, "OBLIQ-Mini-Math")
    'Find proofs alike: '
    >>> instruction({"OBLIQ-Math": "Find proofs alike: "}, "my-folder")
    ''
    """
    return prompts.get(task) or prompts.get(task.replace("OBLIQ-Mini-", "OBLIQ-", 1)) or ""


def load(folder: Path, device: str | None = None) -> TaskConditional:
    """Load a cross-encoder from its folder.

    Raises:
        UserError: If the folder holds none, or one that could run code or that gives more than one score.
    """
    from sentence_transformers import CrossEncoder

    check_folder(folder)
    source = Repository(str(folder))
    if pickle_problems(source):
        raise UserError(
            f"{folder} holds its weights in a form that can run code when it is read: convert them to safetensors"
        )
    kinds = source.record("config.json").get("architectures") or [""]
    saved = source.record("config_sentence_transformers.json").get("model_type")
    if saved != "CrossEncoder" and not str(kinds[0]).endswith("ForSequenceClassification"):
        raise UserError(
            f"{folder} holds no cross-encoder but {kinds[0] or 'a model'}, which would get a head of random weights: "
            "name a folder that was trained to score pairs"
        )
    try:
        model = CrossEncoder(str(folder), device=device, local_files_only=True)
        labels = model.num_labels
    except Exception as error:  # of a file that is not what it should be
        first = (str(error).strip() or "no message").splitlines()[0]
        raise UserError(f"{folder} holds no cross-encoder ({type(error).__name__}: {first})") from error
    if labels != 1:
        raise UserError(f"{folder} is a classifier of {labels} classes: a reranker gives one score")
    return TaskConditional(model, f"local/{folder.resolve().name}", fingerprint(folder))
