"""The embedded backend keeps what every backend keeps, on a real server of a tiny mixture-of-experts model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rollout_core.testing import BackendConformance, LiveBackendConformance
from rollout_core.types import GenerateRequest, Reply

REQUEST = GenerateRequest((1, 2, 3), request_id="r")
WHOLE = {
    "request_id": "r",
    "token_ids": [5, 6],
    "logprobs": [-0.5, -1.5],
    "sampled_logprobs": None,
    "top_logprobs": None,
    "prompt_logprobs": None,
    "routed_experts": None,
    "text": "ab",
    "finish_reason": "length",
    "stop_reason": None,
    "weight_versions": [[0, 0, 2]],
    "prompt_tokens": 3,
    "cached_tokens": 0,
    "timing": {"queued_s": 0.1, "prefill_s": 0.2, "decode_s": 0.3},
    "error": None,
}


class TestTransformers(BackendConformance):
    backend = "transformers"
    broken_replies = {  # noqa: RUF012
        "a gap in the versions": (REQUEST, Reply(200, {**WHOLE, "weight_versions": [[0, 0, 1], [1, 2, 3]]})),
        "fewer versions than tokens": (REQUEST, Reply(200, {**WHOLE, "weight_versions": [[0, 0, 1]]})),
        "no versions": (REQUEST, Reply(200, {**WHOLE, "weight_versions": None})),
        "experts that are not base64": (
            REQUEST,
            Reply(200, {**WHOLE, "routed_experts": {"shape": [4, 1, 2], "dtype": "uint8", "data": "?"}}),
        ),
    }


class TestTransformersLive(LiveBackendConformance):
    backend = "transformers"
    config = {"context_length": 512, "routed_experts": True}  # noqa: RUF012

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _model(cls, checkpoint: object) -> Iterator[None]:
        cls.model = str(checkpoint("qwen3_moe"))  # type: ignore[operator]
        yield
        cls.close_engine()
