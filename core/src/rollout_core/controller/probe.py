"""The fingerprint of an engine's weights: log-probabilities of one fixed prompt. Engines of one version must agree."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rollout_core.errors import EngineError, ReplyError
from rollout_core.model import ModelInfo
from rollout_core.plugins import Backend
from rollout_core.types import Capability, GenerateRequest, SampleParams
from rollout_core.worker import Worker

__all__ = ["dissenters", "fingerprint", "probe_request"]

Fingerprint = tuple[float, ...]

PROMPT_TOKENS = 24


def probe_request(backend: Backend, model: ModelInfo) -> GenerateRequest:
    """A prompt of ids spread over the vocabulary, scored whole where the backend scores prompts."""
    vocabulary = model.vocab_size or 256
    prompt = tuple((7 * place + 3) % vocabulary for place in range(PROMPT_TOKENS))
    scored = backend.offers(Capability.PROMPT_LOGPROBS)
    return GenerateRequest(prompt, SampleParams(temperature=0, max_tokens=1, prompt_logprobs=scored))


def fingerprint(backend: Backend, worker: Worker, request: GenerateRequest) -> Fingerprint:
    """Natural logs: of the prompt's tokens after the first (where scored), then of the most likely next token.

    Raises:
        EngineError: the engine does not answer.
        ReplyError: it answers with what no model can mean.
    """
    reply = worker.call(backend.build_payload(request))
    if not reply.ok:
        raise EngineError(f"{worker.spec.name} answered the probe with {reply.status}: {str(reply.body)[:500]}")
    result = backend.parse_response(request, reply)
    values = [*(result.prompt_logprobs or ())[1:], *(result.logprobs or ())]
    if not values or any(value is None or not math.isfinite(value) for value in values):
        raise ReplyError(f"{worker.spec.name} answered the probe with log-probabilities that are not finite")
    return tuple(value for value in values if value is not None)


def dissenters(fingerprints: Mapping[str, Fingerprint], within: float) -> dict[str, str]:
    """The engines outside the largest group that agrees, and why; all of them when no group is the largest."""
    groups = {
        name: frozenset(other for other, theirs in fingerprints.items() if _distance(own, theirs) <= within)
        for name, own in fingerprints.items()
    }
    largest = max(map(len, groups.values()), default=0)
    majority = {group for group in groups.values() if len(group) == largest}
    agreed = next(iter(majority)) if len(majority) == 1 else frozenset[str]()
    return {name: _reason(name, fingerprints, within) for name in fingerprints if name not in agreed}


def _reason(name: str, fingerprints: Mapping[str, Fingerprint], within: float) -> str:
    farthest = max(_distance(fingerprints[name], other) for other in fingerprints.values())
    return f"its log-probabilities of the probe differ by {farthest:.3g} from another engine's, above {within:g}"


def _distance(one: Fingerprint, other: Fingerprint) -> float:
    return max((abs(a - b) for a, b in zip(one, other, strict=True)), default=0.0)
