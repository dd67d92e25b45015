"""What a model's tokens cost, by a table that the user supplies and dates; none is shipped."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from obliq_eval.errors import UserError, near, raise_all
from obliq_eval.toml import read_toml

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MILLION = Decimal(1_000_000)
EXAMPLE = 'currency = "EUR", date = 2026-11-30, and for each model [models."NAME"] with input = 1.25 and output = 10.0'


@dataclass(frozen=True)
class Prices:
    """Prices by model.

    Args:
        currency: Such as `EUR`.
        date: The day on which the prices were read.
        models: `{model: (price of a million prompt tokens, price of a million completion tokens)}`. Discounts for
            prompts that a server has cached are not known here: the full price counts.
        source: The file.
    """

    currency: str
    date: date
    models: Mapping[str, tuple[Decimal, Decimal]] = field(default_factory=dict)
    source: str = "the price table"

    def cost(self, model: str, prompt_tokens: int, completion_tokens: int) -> Decimal:
        """Return the price of one call.

        Raises:
            UserError: If the table does not have the model.
        """
        if model not in self.models:
            raise UserError(
                f'{self.source} has no price for the model {model!r}{near(model, self.models)}: add [models."{model}"] '
                "with input and output, per million tokens"
            )
        prompt, completion = self.models[model]
        return (prompt * prompt_tokens + completion * completion_tokens) / MILLION

    def __str__(self) -> str:
        return f"{self.currency}, prices of {self.date.isoformat()}"


def read_prices(path: Path) -> Prices:
    """Read a price table from a TOML file.

    Raises:
        UserError: If it cannot be read or is not of the form in `EXAMPLE`; every problem at once.
    """
    table = read_toml(path, Decimal)
    problems = [f"unknown key {key!r}" for key in table.keys() - {"currency", "date", "models", "source"}]
    if not isinstance(table.get("currency"), str):
        problems.append("currency is missing")
    if type(table.get("date")) is not date:
        problems.append("date is missing: the day on which the prices were read, such as 2026-11-30")
    models = table.get("models")
    if not isinstance(models, dict) or not models:
        problems.append("models are missing")
        models = {}
    for name, row in models.items():
        problems += _faults(name, row)
    raise_all(sorted(problems), f"the price table {path} (wanted: {EXAMPLE})")
    found = {name: (Decimal(row["input"]), Decimal(row["output"])) for name, row in models.items()}
    return Prices(table["currency"], table["date"], found, str(path))


def _faults(name: str, row: Any) -> list[str]:
    if not isinstance(row, dict) or row.keys() != {"input", "output"}:
        return [f"model {name!r} needs input and output, per million tokens, and nothing else"]
    return [
        f"model {name!r}: {kind} must be a number from 0 on, not {value!r}"
        for kind, value in row.items()
        if isinstance(value, bool)
        or not isinstance(value, int | Decimal)
        or not Decimal(value).is_finite()
        or value < 0
    ]
