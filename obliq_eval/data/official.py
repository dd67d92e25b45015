"""The official benchmark: where it lies, at which commit, and what it is published to hold."""

from __future__ import annotations

from dataclasses import dataclass

REPOSITORY = "dianetc/OBLIQ-Bench"
REVISION = "4ebee29f68ceeb62ca00bd73d5478acdd3cd7764"
MIRROR = "mteb/OBLIQBenchRetrieval"
MIRROR_REVISION = "b630be644e0dbdc2fa5f712ae8383ebbb9cbee7e"
LICENCE = "cc-by-4.0"

FILES = {
    "corpus": "corpus/corpus.jsonl",
    "queries": "queries+qrels/queries.jsonl",
    "gold": "queries+qrels/qrels.tsv",
    "pooled": "queries+qrels/qrels_pool.tsv",
    "exclusions": "queries+qrels/per_query_excluded_ids.json",
    "groups": "queries+qrels/groups.json",
}
"""The layout of a task's folder: paths by role. The repository has no groups; the bundled sets do."""
NEEDED = (FILES["corpus"], FILES["queries"], FILES["gold"])
"""The files that every task has."""


@dataclass(frozen=True)
class OfficialTask:
    """One task of OBLIQ-Bench (arXiv:2605.06235) and its published counts.

    Args:
        name: Name of the task here.
        folder: Folder in the repository.
        mechanism: Query mechanism: descriptive, analogue or tip-of-the-tongue.
        attribute: The latent attribute that decides relevance.
        documents: Published size of the corpus.
        distinct_texts: Published number of different texts.
        queries: Published number of queries.
        gold: Published number of gold judgments.
        pooled: Published number of pooled judgments, or None.
        excludes: Whether queries exclude documents.
    """

    name: str
    folder: str
    mechanism: str
    attribute: str
    documents: int
    distinct_texts: int
    queries: int
    gold: int
    pooled: int | None
    excludes: bool

    @property
    def subset(self) -> str:
        """The last part of the folder, which the mirror uses as configuration name."""
        return self.folder.rsplit("/", 1)[-1]

    @property
    def files(self) -> tuple[str, ...]:
        """The files that the repository holds for it, below its folder."""
        pooled = () if self.pooled is None else (FILES["pooled"],)
        return (*NEEDED, *pooled, *((FILES["exclusions"],) if self.excludes else ()))


OFFICIAL = {
    task.name: task
    for task in (
        OfficialTask(
            "OBLIQ-Twitter", "descriptive/twitter", "descriptive", "implicit stance towards a conflict",
            72_122, 71_183, 281, 2_773, 3_928, excludes=False,
        ),
        OfficialTask(
            "OBLIQ-WildChat", "descriptive/wildchat", "descriptive", "behavioural failure of an assistant",
            507_729, 264_042, 40, 774, 877, excludes=False,
        ),
        OfficialTask(
            "OBLIQ-Math", "analogues/math", "analogue", "abstract proof technique",
            3_508, 3_503, 151, 2_044, 2_157, excludes=True,
        ),
        OfficialTask(
            "OBLIQ-Writing", "analogues/writing", "analogue", "author's style",
            10_389, 10_389, 512, 4_615, None, excludes=True,
        ),
        OfficialTask(
            "OBLIQ-Congress", "tip-of-tongue/congress", "tip-of-the-tongue", "rhetorical dynamic of an exchange",
            213_650, 212_791, 254, 254, None, excludes=False,
        ),
    )
}  # fmt: skip
