"""Vectors from Google's Gemini, kept in the store like those of any other model.

mteb's `GoogleGeminiEmbeddingModel` is not used: it asks for all texts at once and loses them all if one fails, so
that nothing can be resumed; mteb 2.26.24 imports httpx to tell which errors pass, which current versions of Google's
client do not bring; and it puts the task into the text, where the benchmark's authors sent it as a parameter.
"""

from __future__ import annotations

import os
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Literal, get_args

from obliq_eval.errors import MissingExtraError, UserError, near
from obliq_models.encoders.remote import BUSY, Answer, Pace, RemoteEncoder, Trouble
from obliq_models.encoders.retrying import seconds_to_wait, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from obliq_models.encoders.base import Role
    from obliq_models.retrievers.dense import DenseRetriever

TaskAs = Literal["parameter", "text"]
KEYS = ("GOOGLE_API_KEY", "GEMINI_API_KEY")
"""Google's client takes the first that is set."""
ADDRESS = "GOOGLE_GEMINI_BASE_URL"
TASK_TYPES: Mapping[Role, str] = {"query": "RETRIEVAL_QUERY", "document": "RETRIEVAL_DOCUMENT"}
PREFIXES: Mapping[Role, str] = {"query": "task: search result | query: ", "document": "title: none | text: "}
"""What Google recommends to put before texts for this model, instead of a task type, and mteb puts there."""
_NETWORK = ("httpx", "httpx2", "httpcore", "httpcore2", "aiohttp", "requests", "urllib3")


def load(  # noqa: PLR0913 -- each is a setting of its own
    name: str,
    revision: str | None = None,
    *,
    server_model: str = "gemini-embedding-2",
    dimensions: int = 3_072,
    task_as: TaskAs = "parameter",
    batch_size: int = 50,
    in_flight: int = 4,
    tries: int = 8,
    device: str | None = None,  # noqa: ARG001 -- it runs at Google's
    **settings: Any,
) -> DenseRetriever:
    """Return a dense retriever whose vectors come from Gemini.

    Args:
        name: Full name of the model.
        revision: What identifies these settings.
        server_model: What Google calls the model.
        dimensions: Length of the vectors: 768, 1,536 or 3,072.
        task_as: Whether the task type is a `parameter` (`TASK_TYPES`), as the benchmark's authors sent it, or stands
            in the `text` (`PREFIXES`), as Google recommends for this model.
        batch_size: Texts in one request.
        in_flight: Requests under way at once.
        tries: How often a request is made before the server is given up.
        device: Nothing; mteb passes it to every model.
        **settings: See `DenseRetriever`.

    Raises:
        MissingExtraError: If the package google-genai is not installed.
        UserError: If there is no key, or a setting is unknown.
    """
    encoder = GeminiEncoder(
        name,
        revision,
        server_model=server_model,
        dimensions=dimensions,
        task_as=task_as,
        pace=Pace(batch_size=batch_size, in_flight=in_flight, tries=tries),
    )
    from obliq_models.retrievers.dense import DenseRetriever  # heavy, so only after the checks

    return DenseRetriever(encoder, **settings)


class GeminiEncoder(RemoteEncoder):
    """Encodes with Google's client (see `RemoteEncoder`), and brings vectors to unit length.

    The service reads 8,192 tokens of a text and does not say when it has cut one. The key is read from the
    environment, by Google's client, and appears in no message, setting or cache.

    Args:
        name: Full name of the model.
        revision: What identifies these settings.
        server_model: What Google calls the model.
        dimensions: Length of the vectors.
        task_as: How it is told the task: as a `parameter` or in the `text`.
        pace: How fast it is asked.

    Raises:
        MissingExtraError: If the package google-genai is not installed.
        UserError: If there is no key, or `task_as` is unknown.
    """

    def __init__(
        self,
        name: str,
        revision: str | None = None,
        *,
        server_model: str = "gemini-embedding-2",
        dimensions: int = 3_072,
        task_as: TaskAs = "parameter",
        pace: Pace | None = None,
    ) -> None:
        if task_as not in get_args(TaskAs):
            known = get_args(TaskAs)
            raise UserError(f"{name}: task_as = {task_as!r} is none of {', '.join(known)}{near(str(task_as), known)}")
        address = os.environ.get(ADDRESS, "")
        self.address = shown(address) if address else "Google"
        super().__init__(
            name,
            revision,
            dimensions,
            who=f"Gemini at {self.address}",
            pace=pace,
        )
        self.server_model, self.task_as = server_model, task_as
        self._client = _client(name, self.pace.timeout)

    def settings(self, role: Role) -> dict[str, Any]:
        """Return what else can change a vector."""
        return {
            "server": self.address,
            "server_model": self.server_model,
            "dimensions": self.dims,
            "task": TASK_TYPES[role] if self.task_as == "parameter" else PREFIXES[role],
            "normalize": self.normalize,
        }

    def before(self, role: Role, instruction: str) -> str:
        """Return the task, where it stands in the text, then the instruction."""
        return (PREFIXES[role] if self.task_as == "text" else "") + instruction

    def ask(self, texts: list[str], role: Role) -> Answer | Trouble:
        """Make one request."""
        from google.genai import errors, types

        # A list of plain strings would be taken for the parts of one text by a model that reads pictures as well.
        contents: Any = [types.Content(parts=[types.Part(text=text)]) for text in texts]
        task = TASK_TYPES[role] if self.task_as == "parameter" else None
        config = types.EmbedContentConfig(output_dimensionality=self.dims, task_type=task)
        try:
            answer = self._client.models.embed_content(model=self.server_model, contents=contents, config=config)
            return Answer([one.values or () for one in answer.embeddings or ()])
        except errors.APIError as error:
            headers = getattr(error.response, "headers", None) or {}
            if 300 <= int(error.code or 0) < 400:  # neither the key nor the texts go to anybody who was not named
                return Trouble(f"sends requests on to another address (status {error.code}), which is not followed")
            status, told = int(error.code or 0), _clean(str(error.message or error.status or ""), 200)
            return Trouble(
                f"refuses (status {status}{': ' * bool(told)}{told})",
                passing=status in BUSY or status >= 500,
                wait=seconds_to_wait(headers.get("retry-after")),
            )
        except Exception as error:  # of the HTTP client that Google's has chosen, or of reading what is no answer
            kind = type(error)
            if isinstance(error, OSError) or kind.__module__.partition(".")[0] in _NETWORK:
                return Trouble(f"cannot be reached, or has hung up ({_clean(str(error), 150)})", passing=True)
            return Trouble(f"has answered with something else than vectors ({kind.__name__})")


def _client(name: str, timeout: float) -> Any:
    try:
        from google import genai
    except ImportError as error:
        raise MissingExtraError("google-genai", "gemini", f"the model {name}") from error
    elsewhere = os.environ.get("GOOGLE_GENAI_USE_VERTEXAI", "").lower() in ("1", "true")
    if not elsewhere and not any(os.environ.get(key) for key in KEYS):
        raise UserError(f"{name}: set GEMINI_API_KEY to a key of the Gemini API")
    try:
        return genai.Client(http_options={"timeout": int(1_000 * timeout), "client_args": {"follow_redirects": False}})
    except Exception as error:
        said = _clean(str(error), 200)
    raise UserError(f"{name}: Google's client cannot be set up ({said})")


def _clean(text: str, most: int) -> str:
    for key in KEYS:
        if value := os.environ.get(key):
            text = text.replace(value, "[key]")
    return shorten(text, most, placeholder=" …")
