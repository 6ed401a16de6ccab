"""The cluster that a config speaks of."""

from __future__ import annotations

from rollout_core.config import RolloutConfig
from rollout_core.errors import ConfigError
from rollout_core.topology import Cluster

__all__ = ["cluster_for"]


def cluster_for(config: RolloutConfig) -> Cluster:
    """The ranks that the config asks for; without accelerators each engine's ranks are shares of the CPUs.

    Raises:
        ConfigError: more engines than the accelerators hold, or an engine over nodes that may not span them.
    """
    size = config.ranks_per_engine
    if config.accelerator == "cpu":
        ranks = (config.engines or 1) * size
        return Cluster(ranks, ranks)
    ranks = config.gpus if config.engines is None else config.engines * size
    if ranks > config.gpus:
        raise ConfigError(
            f"{config.engines} engines of {size} {config.accelerator}s need {ranks}, but gpus is {config.gpus}; "
            f"lower engines or the parallel sizes"
        )
    if size > config.gpus_per_node and not config.cross_node_communication:
        raise ConfigError(
            f"an engine of {size} {config.accelerator}s spans nodes of {config.gpus_per_node}; "
            f"set cross_node_communication = true to allow it"
        )
    return Cluster(ranks, config.gpus_per_node, config.accelerator)
