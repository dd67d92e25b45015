"""Where shards are encoded: in this process, in several of one machine, or on a Ray cluster."""

from obliq_models.engines.base import Engine, Job, Local
from obliq_models.engines.pool import PoolEngine
from obliq_models.engines.ray import RayEngine

__all__ = ["Engine", "Job", "Local", "PoolEngine", "RayEngine"]
