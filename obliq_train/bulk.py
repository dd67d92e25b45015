"""Synthesis on several machines, through Ray Data (`obliq[ray,vllm]`): each worker has a language model of its own.

Blocks of documents are drafted by actors, each with its own client: with the backend `vllm` a copy of the model on its
GPUs, with `openai` the server that its machine's environment names. Drafts come back in the order of the documents, and
repetitions are looked for here. A repeated query is given up rather than asked for again. Answers are kept in the cache
of the machine that asked: a run that was stopped asks again for whatever another machine has in its cache. Limits on
calls, tokens and money hold for each worker, not for all together.

It has been run on one machine against a server; not with vLLM, and not on a cluster.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Any

from obliq_eval.errors import UserError
from obliq_models.engines.ray import cluster
from obliq_train.sampling import Sampled
from obliq_train.synthesis import Draft, Drafted, Plan, Synthesis

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

BLOCK = 256  # documents that one call of an actor drafts: what is lost if it dies


def draft_on_ray(
    plan: Plan, documents: Iterable[Sampled], workers: int = 0, counts: Counter[str] | None = None
) -> Iterator[Drafted]:
    """Yield what is drafted for documents, in their order.

    Args:
        plan: How queries are written.
        documents: The documents; their texts lie in Ray's object store, which spills to disk.
        workers: How many actors; by default one for every GPU, or two without any.
        counts: What the language model was asked is added here, by its name.

    Raises:
        UserError: If ray is not installed, no cluster answers, or a worker's model cannot be asked.
    """
    asked = Counter[str]() if counts is None else counts
    with cluster("synthesis on several machines") as ray:
        from ray import data

        context = data.DataContext.get_current()
        context.enable_progress_bars = False
        context.execution_options.preserve_order = True
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        gpus = int(ray.cluster_resources().get("GPU", 0)) if plan.llm.backend != "openai" else 0
        source = iter(documents)
        blocks = []
        while part := list(islice(source, BLOCK)):
            blocks.append(ray.put(_table([json.dumps(asdict(one)) for one in part])))
        if not blocks:
            return
        made = data.from_arrow_refs(blocks).map_batches(
            _Actor,
            fn_constructor_args=(plan,),
            batch_size=None,  # a block is a batch
            batch_format="pyarrow",
            compute=data.ActorPoolStrategy(size=min(workers or gpus or 2, len(blocks))),
            num_gpus=1 if gpus else 0,
            num_cpus=0.5,  # Ray's own tasks need a processor as well
        )
        table: Any
        for table in made.iter_batches(batch_size=None, batch_format="pyarrow"):
            for text in table["json"].to_pylist():
                found = json.loads(text)
                if "error" in found:
                    raise UserError(found["error"])
                if "counts" in found:
                    asked.update(found["counts"])
                else:
                    yield _drafted(found)


class _Actor:
    """Drafts one block after another."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.client: Any = None

    def __call__(self, block: pa.Table) -> pa.Table:
        documents = [Sampled(**json.loads(text)) for text in block["json"].to_pylist()]
        try:
            self.client = self.client or self.plan.llm.open()
            made = Synthesis(self.plan, self.client)
            before = Counter(made.all_counts())
            rows = [json.dumps(asdict(drafted)) for drafted in made.drafts(documents)]
            after = Counter(made.all_counts())
            after.subtract(before)
        except UserError as error:  # Ray would wrap it into a traceback of its own
            return _table([json.dumps({"error": str(error)})])
        return _table([*rows, json.dumps({"counts": {name: n for name, n in after.items() if n}})])


def _table(texts: list[str]) -> pa.Table:
    import pyarrow as pa

    return pa.table({"json": pa.array(texts, pa.large_string())})


def _drafted(found: dict[str, Any]) -> Drafted:
    drafts = tuple(Draft(**{**draft, "rejected": tuple(draft["rejected"])}) for draft in found["drafts"])
    return Drafted(Sampled(**found["document"]), found["description"], drafts)
