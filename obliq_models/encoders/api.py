"""Vectors from an embeddings server that speaks OpenAI's protocol: OpenAI itself, vLLM, TEI, llama.cpp and others.

mteb's `OpenAIAPIEncodeWrapper` is not used: it asks the server for its models without the key, gives up at the first
429 without reading Retry-After, asks again at once after an error, and has the server cut texts without saying so.
"""

from __future__ import annotations

import os
import re
from textwrap import shorten
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from obliq_eval.errors import MissingExtraError, UserError, near
from obliq_models.encoders.remote import BUSY, Answer, Pace, RemoteEncoder, Trouble
from obliq_models.encoders.retrying import seconds_to_wait, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from obliq_models.encoders.base import Role
    from obliq_models.retrievers.dense import DenseRetriever

PROTOCOLS = ("openai",)

_KEY_PROBLEMS = frozenset({401, 403})
_TOO_LONG = re.compile(
    r"context.?(length|window|size)|max(imum)?[ _](context|input|sequence|model|\d+ tokens)"
    r"|too (long|large|many tokens)|tokens per request|exceed",
    re.IGNORECASE,
)


def load(  # noqa: PLR0913 -- each is a setting of its own
    name: str,
    revision: str | None = None,
    *,
    server_model: str,
    server: str = "openai",
    base_url_env: str = "OPENAI_BASE_URL",
    key_env: str = "OPENAI_API_KEY",
    dimensions: int | None = None,
    query_prefix: str = "",
    document_prefix: str = "",
    normalize: bool = True,
    batch_size: int = 50,
    in_flight: int = 4,
    tries: int = 8,
    timeout: float = 120.0,
    device: str | None = None,  # noqa: ARG001 -- the server decides where it runs
    **settings: Any,
) -> DenseRetriever:
    """Return a dense retriever whose vectors come from a server.

    Args:
        name: Full name of the model.
        revision: What identifies these settings; a server does not say which weights it runs.
        server_model: What the server calls the model.
        server: The protocol; `openai` is the only one.
        base_url_env: Environment variable that holds the server's address, such as `http://127.0.0.1:8000/v1`.
        key_env: Environment variable that holds the key; a server may need none.
        dimensions: Length of the vectors, asked of the server; without it one text is encoded to learn it.
        query_prefix: Put before every query.
        document_prefix: Put before every document.
        normalize: Bring vectors to unit length, so that the score is the cosine.
        batch_size: Texts in one request.
        in_flight: Requests under way at once.
        tries: How often a request is made before the server is given up.
        timeout: Seconds to wait for an answer.
        device: Nothing; mteb passes it to every model.
        **settings: See `DenseRetriever`.

    Raises:
        MissingExtraError: If the package openai is not installed.
        UserError: If the protocol is unknown or no address is set; if the length of the vectors is to be learnt and
            the server cannot be reached or refuses.
    """
    if server not in PROTOCOLS:
        raise UserError(f"{name}: server = {server!r} is no protocol{near(server, PROTOCOLS)}; it can be 'openai'")
    encoder = ApiEncoder(
        name,
        revision,
        server_model=server_model,
        base_url=_address_from(base_url_env, name),
        key_env=key_env,
        dimensions=dimensions,
        query_prefix=query_prefix,
        document_prefix=document_prefix,
        normalize=normalize,
        pace=Pace(batch_size=batch_size, in_flight=in_flight, tries=tries, timeout=timeout),
    )
    from obliq_models.retrievers.dense import DenseRetriever  # heavy, so only after the checks

    return DenseRetriever(encoder, **settings)


class ApiEncoder(RemoteEncoder):
    """Encodes through `POST …/embeddings` (see `RemoteEncoder`).

    Vectors are put into the order of their indices. The key is read from the environment when the encoder is made,
    and appears in no message, setting or cache; the address is shown without what may be a secret in it. An empty
    text without prefix is sent as one blank.

    Args:
        name: Full name of the model.
        revision: What identifies these settings.
        server_model: What the server calls the model.
        base_url: The server's address.
        key_env: Environment variable that holds the key.
        dimensions: Length of the vectors, asked of the server; without it one text is encoded to learn it.
        query_prefix: Put before every query.
        document_prefix: Put before every document.
        normalize: Bring vectors to unit length.
        pace: How fast it is asked.

    Raises:
        MissingExtraError: If the package openai is not installed.
        UserError: If the length of the vectors is to be learnt and cannot be.
    """

    def __init__(  # noqa: PLR0913 -- each is a setting of its own
        self,
        name: str,
        revision: str | None = None,
        *,
        server_model: str,
        base_url: str,
        key_env: str = "OPENAI_API_KEY",
        dimensions: int | None = None,
        query_prefix: str = "",
        document_prefix: str = "",
        normalize: bool = True,
        pace: Pace | None = None,
    ) -> None:
        self.server_model, self.address, self.key_env = server_model, shown(base_url), key_env
        super().__init__(
            name,
            revision,
            dimensions or 0,
            who=f"the server at {self.address}",
            normalize=normalize,
            pace=pace,
        )
        self.dimensions = dimensions
        self._prefix: Mapping[Role, str] = {"query": query_prefix, "document": document_prefix}
        self._key = os.environ.get(key_env, "")
        self._client = _client(name, base_url, self._key, self.pace.timeout)
        if dimensions is None:
            self.dims = self.run(["a first text"], "document", "").vectors.shape[1]

    def settings(self, role: Role) -> dict[str, Any]:
        """Return what else can change a vector; the address is part of it, without any credentials."""
        return {
            "server": self.address,
            "server_model": self.server_model,
            "dimensions": self.dimensions,
            "prefix": self._prefix[role],
            "normalize": self.normalize,
        }

    def before(self, role: Role, instruction: str) -> str:
        """Return the prefix, then the instruction."""
        return self._prefix[role] + instruction

    def ask(self, texts: list[str], role: Role) -> Answer | Trouble:  # noqa: ARG002 -- the prefix says it
        """Make one request."""
        import openai

        more: dict[str, Any] = {} if self.dimensions is None else {"dimensions": self.dimensions}
        if not self._key:
            more["extra_headers"] = {"Authorization": openai.Omit()}
        try:
            return self._read(self._client.embeddings.create(model=self.server_model, input=texts, **more))
        except openai.APIStatusError as error:
            return self._refusal(error)
        except openai.APITimeoutError:
            return Trouble("has not answered in time", passing=True)
        except openai.APIConnectionError as error:
            why = self._clean(str(error.__cause__ or error), 150)
            return Trouble(f"cannot be reached, or has hung up ({why})", passing=True)
        except Exception as error:  # whatever the client makes of an answer that is none
            return Trouble(f"has answered with something else than vectors ({type(error).__name__})")

    def _read(self, answer: Any) -> Answer | Trouble:
        rows = list(answer.data)
        if {row.index for row in rows} != set(range(len(rows))):
            return Trouble(f"returned {len(rows)} vectors that are not numbered 0 to {len(rows) - 1}")
        rows.sort(key=lambda row: int(row.index))
        usage = getattr(answer, "usage", None)
        tokens = getattr(usage, "prompt_tokens", None) or getattr(usage, "total_tokens", None) or 0
        return Answer([row.embedding for row in rows], int(tokens))

    def _refusal(self, error: Any) -> Trouble:
        status, code = int(error.status_code), str(error.code or "")
        if status in _KEY_PROBLEMS:  # some servers repeat the key here
            known = "the key in" if self._key else "no key, and there is none in"
            return Trouble(f"refuses {known} {self.key_env} (status {status})")
        if 300 <= status < 400:  # neither the key nor the texts go to anybody who was not named
            return Trouble(f"sends requests on to another address (status {status}), which is not followed")
        said = error.body.get("message") if isinstance(error.body, dict) else error.body
        told = self._clean(str(said or ""), 200)
        too_long = status in (400, 413, 422) and bool(code == "context_length_exceeded" or _TOO_LONG.search(told))
        return Trouble(
            f"refuses (status {status}{': ' * bool(told)}{told})",
            passing=(status in BUSY or status >= 500) and code != "insufficient_quota",
            wait=seconds_to_wait(error.response.headers.get("retry-after")),
            too_long=too_long,
        )

    def _clean(self, text: str, most: int) -> str:
        return shorten(text.replace(self._key, "[key]") if self._key else text, most, placeholder=" …")


def _address_from(variable: str, name: str) -> str:
    """Return the server's address; there is no default, as texts must not go to anybody who was not named."""
    base_url = os.environ.get(variable, "").strip()
    example = f"{variable}=http://127.0.0.1:8000/v1"
    if not base_url:
        raise UserError(f"{name}: set {variable} to the address of the embeddings server, such as {example}")
    try:
        valid = urlsplit(base_url).scheme in ("http", "https") and bool(shown(base_url).partition("://")[2])
    except ValueError:  # a port that is no number
        valid = False
    if not valid:
        raise UserError(f"{name}: {variable} holds no address; it is of the form {example}")
    return base_url


def _client(name: str, base_url: str, key: str, timeout: float) -> Any:
    """Return OpenAI's client, which itself tries nothing again: that is counted and told here."""
    try:
        import openai
    except ImportError as error:
        raise MissingExtraError("openai", "openai", f"the model {name}") from error
    http = openai.DefaultHttpxClient(follow_redirects=False)
    return openai.OpenAI(api_key=key or "none", base_url=base_url, timeout=timeout, max_retries=0, http_client=http)
