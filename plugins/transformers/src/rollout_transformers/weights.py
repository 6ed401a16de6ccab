"""A weight update as calls to the embedded server: check, write bucket by bucket, finish."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rollout_core import WeightUpdateError
from rollout_core.types import Ack, Bucket, Call, HttpCall, TensorSpec, WeightGroup, WeightUpdate
from rollout_transformers.control import acknowledged, ask

__all__ = ["update"]


def update(update: WeightUpdate, call: Call) -> Ack:
    """Bring the update to the server.

    Raises:
        WeightUpdateError: it was refused, and the server goes on with the weights it has.
        EngineError: it broke in the middle; the server refuses to generate until an update succeeds.
    """
    if update.folder is not None:
        body = {"version": update.version, "folder": update.folder, "refuse_non_finite": update.refuse_non_finite}
        ask(HttpCall("/weights/folder", body), call)
    else:
        ask(HttpCall("/weights/begin", {"version": update.version, "tensors": _tensors(update.tensors)}), call)
        _send_buckets(update, call)
    return acknowledged(ask(HttpCall("/weights/finish", {"keep_cache": update.keep_cache}), call))


def _send_buckets(update: WeightUpdate, call: Call) -> None:
    joined = False
    try:
        for bucket in update.buckets:
            if update.group is not None and not joined:
                ask(_join(update.group), call)
                joined = True
            ask(_bucket(bucket), call)
    except WeightUpdateError:
        ask(HttpCall("/weights/cancel", {}), call)
        raise


def _join(group: WeightGroup) -> HttpCall:
    body = {
        "backend": group.backend,
        "host": group.host,
        "port": group.port,
        "world_size": group.world_size,
        "rank": group.first_rank,
        "timeout_s": group.timeout_s,
    }
    return HttpCall("/weights/join", body)


def _bucket(bucket: Bucket) -> HttpCall:
    body = {"tensors": _tensors(bucket.tensors), "shared_memory": bucket.shared_memory, "size": bucket.size}
    return HttpCall("/weights/bucket", body)


def _tensors(specs: Sequence[TensorSpec]) -> list[dict[str, Any]]:
    return [
        {"name": spec.name, "dtype": spec.dtype, "shape": list(spec.shape), "offset": spec.offset} for spec in specs
    ]
