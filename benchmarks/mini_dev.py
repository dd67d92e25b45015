"""What settings of obliq-ir-mini are chosen on: passages and recollections of the eight persons of part dev.

`mini-dev` trains on none of their passages. Their 457 passages are asked for passages of the same person in other
addresses, those of the same address left out; 353 recollections, each for its own passage. All search the 1,255
passages that `obliq-ir-mini` may be trained on. No query or judgment of a task is read.

    python benchmarks/mini_dev.py [MODEL ...]        as after -m: minilm, stylometry, minilm@FOLDER
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

FOLDER = Path(__file__).resolve().parent.parent / "obliq_train" / "mini"
COLUMNS = ("model", "style NDCG@10", "style Recall@100", "recollections NDCG@10", "recollections Recall@100")


def read(name: str) -> list[dict[str, Any]]:
    """Return the rows of a file that ships."""
    return [json.loads(line) for line in (FOLDER / name).read_text(encoding="utf-8").splitlines()]


def mean_scores(scores: Any, relevant: Any) -> tuple[float, float]:
    """Return mean NDCG@10 and Recall@100 of rows of scores; `relevant` is a mask of the same shape."""
    gains = 1 / np.log2(np.arange(2, 12))
    hits = np.take_along_axis(relevant, np.argsort(-scores, axis=1, kind="stable"), axis=1)
    best = np.array([gains[:count].sum() for count in relevant.sum(axis=1)])
    return float((hits[:, :10] @ gains / best).mean()), float((hits[:, :100].sum(axis=1) / relevant.sum(axis=1)).mean())


def main() -> None:
    """Print one table."""
    import datasets

    from obliq_models.loading import load
    from obliq_models.naming import find
    from obliq_models.retrievers.base import Texts

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["minilm"], metavar="MODEL")
    models = parser.parse_args().models
    passages = read("writing.jsonl")
    ids, texts, address = (np.array([row[key] for row in passages]) for key in ("_id", "text", "address"))
    person = np.array([one.rpartition(" ")[0] for one in address.tolist()])
    dev = np.array([row["part"] == "dev" for row in passages])
    same = address[dev, None] == address
    style = (person[dev, None] == person) & ~same
    recalled = [row for row in read("congress.jsonl") if row["query_id"] in set(ids[dev].tolist())]
    own = np.array([row["query_id"] for row in recalled])[:, None] == ids
    table = Table(title=f"{len(style)} passages and {len(recalled)} recollections of dev persons")
    for column in COLUMNS:
        table.add_column(column, justify="left" if column == "model" else "right")
    for name in models:
        model = load(find(name))
        model.fit(Texts(datasets.Dataset.from_dict({"text": texts.tolist()})))
        by_style = np.concatenate(list(model.score(texts[dev].tolist())))
        by_style[same] = -np.inf
        by_query = np.concatenate(list(model.score([row["query"] for row in recalled])))
        told = (*mean_scores(by_style, style), *mean_scores(by_query, own))
        table.add_row(name, *(f"{value:.3f}" for value in told))
    Console().print(table)


if __name__ == "__main__":
    main()
