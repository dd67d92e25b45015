"""Options of every command that asks a language model; each has a place in the environment as well."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

PANEL = "Language model"


def _option(name: str, text: str, variable: str = "", metavar: str | None = None) -> typer.models.OptionInfo:
    shown = variable or "OBLIQ_LLM_" + name.removeprefix("--").replace("-", "_").upper()
    found: typer.models.OptionInfo = typer.Option(
        name, help=f"{text} [${shown}]", rich_help_panel=PANEL, metavar=metavar
    )
    return found


Llm = Annotated[str | None, _option("--llm", "The model's name, as the server knows it.", "OBLIQ_LLM", "MODEL")]
Backend = Annotated[
    str | None, _option("--llm-backend", "openai (any such server), vllm or transformers.", "OBLIQ_LLM_BACKEND")
]
Temperature = Annotated[float | None, _option("--temperature", "0 for the likeliest answer.")]
MaxTokens = Annotated[int | None, _option("--max-tokens", "The longest answer, thinking included.")]
Template = Annotated[
    str | None, _option("--template", 'The chat template\'s arguments: {"enable_thinking": false}.', metavar="JSON")
]
Concurrency = Annotated[int | None, _option("--concurrency", "Calls on their way at once.")]
LimitCalls = Annotated[int | None, _option("--limit-calls", "Stop before more calls than these.")]
LimitTokens = Annotated[int | None, _option("--limit-tokens", "Stop before more tokens, read and written.")]
LimitMoney = Annotated[float | None, _option("--limit-money", "Stop before more money, by --prices.")]
PriceFile = Annotated[Path | None, _option("--prices", "Price table (TOML), with its date.", metavar="FILE")]
Replay = Annotated[
    bool, typer.Option("--replay", help="Make no calls: use stored answers alone.", rich_help_panel=PANEL)
]
