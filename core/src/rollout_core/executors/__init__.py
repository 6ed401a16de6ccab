"""Where workers run: in this process, or (with a cluster) in actors."""

from rollout_core.executors.cluster import cluster_for
from rollout_core.executors.local import LocalExecutor

__all__ = ["LocalExecutor", "cluster_for"]
