"""A reply of the toy engine, as it came over the wire."""

from __future__ import annotations

from rollout_core.testing import ReplyExample
from rollout_core.types import FinishReason, GenerateRequest, GenerateResult, Reply, SampleParams

REQUEST = GenerateRequest((7, 10, 13, 16), SampleParams(max_tokens=4, stop_token_ids=(9,)), request_id="recorded-1")
REPLY = Reply(
    200,
    {
        "request_id": "recorded-1",
        "ids": [28, 50, 9],
        "logprobs": [-1.207152, -2.417081, -0.913555],
        "sampled_logprobs": [-1.207152, -2.417081, -0.913555],
        "top_logprobs": None,
        "prompt_logprobs": None,
        "experts": None,
        "text": "degcbb",
        "finish": "stop",
        "stop": 9,
    },
)
RESULT = GenerateResult(
    request_id="recorded-1",
    prompt_ids=REQUEST.prompt_ids,
    token_ids=(28, 50, 9),
    logprobs=(-1.207152, -2.417081, -0.913555),
    text="degcbb",
    finish_reason=FinishReason.STOP,
    stop_reason=9,
)
REPLY_EXAMPLES = (ReplyExample(REQUEST, REPLY, RESULT),)
