"""Ranks of a barrier stage of Spark: one task each, introduced by the stage's own all-gather."""

from __future__ import annotations

import base64
import sys
from typing import Any, Hashable, Optional

__all__: list[str] = []


class Spark:
    """Introduces the tasks of a barrier stage. A stage that Spark tries again meets anew, since its context is another one."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self.rank: int = context.partitionId()
        self.world_size: int = len(context.getTaskInfos())

    def publish(self, record: bytes) -> None:
        """Hands the record to all tasks; they all have to come."""
        self._context.allGather(base64.b64encode(record).decode())

    def fetch(self, seconds: float) -> bytes:
        """Takes it; how long that may last is Spark's setting ``spark.barrier.sync.timeout``."""
        return base64.b64decode(self._context.allGather("")[0])


def run_here() -> Optional[Hashable]:
    """The task that this is: Spark has the same process do one after the other. One of another stage than a barrier stage is no rank of the
    stage before, either."""
    spark = sys.modules.get("pyspark")
    kind = getattr(spark, "TaskContext", None)
    context = None if kind is None else kind.get()
    return None if context is None else int(context.taskAttemptId())


def find() -> Optional[Spark]:
    """Whether this is a task of a barrier stage."""
    context = _context()
    return None if context is None else Spark(context)


def _context() -> Any:
    spark = sys.modules.get("pyspark")
    kind = getattr(spark, "BarrierTaskContext", None)
    if spark is None or kind is None or not isinstance(spark.TaskContext.get(), kind):
        return None
    return kind._getOrCreate()
