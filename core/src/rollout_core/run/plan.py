"""How the samples of a run are drawn, and the request of each."""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass, field

from rollout_core.types import GenerateRequest, SampleParams

__all__ = ["Plan", "seed_of"]


@dataclass(frozen=True, slots=True)
class Plan:
    """How samples are drawn."""

    params: SampleParams
    n: int
    """Samples of each prompt."""
    concurrency: int
    """Requests in flight at any time."""
    seed: int | None = None
    """Decides the seed of every sample; None leaves the engines to draw as they like."""
    session: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    """Makes request ids unique over resumes."""

    def request(self, prompt_index: int, sample_index: int, prompt_ids: tuple[int, ...]) -> GenerateRequest:
        """The request of one sample."""
        params = self.params
        if self.seed is not None:
            params = params.model_copy(update={"seed": seed_of(self.seed, prompt_index, sample_index)})
        return GenerateRequest(
            prompt_ids,
            params,
            request_id=f"{self.session}-{prompt_index}-{sample_index}",
            group_id=f"{self.session}-{prompt_index}" if self.n > 1 else None,
        )


def seed_of(seed: int, prompt_index: int, sample_index: int) -> int:
    """The seed of one sample, below 2**63: a function of nothing else, so a resume draws the same."""
    digest = hashlib.blake2b(f"{seed}/{prompt_index}/{sample_index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
