"""The live suite catches engines that break one rule: each fault, and the check that must find it."""

from __future__ import annotations

import pytest
from toy_backend.backend import CHECKPOINT, ToyBackend

from rollout_core.testing import LiveBackendConformance, run_suite
from rollout_core.testing.report import Outcome

CAUGHT_BY = {
    "DropsLastLogprob": "logprobs_are_probabilities",
    "PositiveLogprob": "logprobs_are_probabilities",
    "NanLogprob": "logprobs_are_probabilities",
    "ZeroFilledLogprobs": "logprobs_are_probabilities",
    "RetokenizedIds": "tokens_follow_the_prompt",
    "ProcessedLogprobs": "model_logprobs_ignore_sampling",
    "WrongPromptLogprobs": "prompt_logprobs",
    "RestartsContinuations": "continuation_is_exact",
    "IgnoresSeed": "seed_repeats_alone",
    "SeedDependsOnBatch": "seed_repeats_in_company",
    "OneSeedForAll": "seeds_differ",
    "IgnoresTopK": "top_k_filters",
    "IgnoresMinP": "min_p_filters",
    "IgnoresPresencePenalty": "penalties_change_the_output",
    "IgnoresStopStrings": "stop_string",
    "CutsIdsWithText": "stop_string",
    "IgnoresMinTokens": "min_tokens",
    "SaysStopForLength": "length",
    "SaysLengthForContext": "context_limit",
    "DropsEos": "eos",
    "LosesPartialTokens": "abort_one",
    "IgnoresAbort": "abort_all",
    "AbortsEverything": "abort_one",
    "OutlivesItsClient": "cancellation_frees_the_engine",
    "KeepGoesOn": "pause_keep",
    "ComputesTwice": "no_request_is_computed_twice",
    "SwapsReplies": "concurrent_requests_keep_their_tokens",
    "LosesARequest": "concurrent_requests_come_back_once",
    "FrozenCounter": "health_progress",
    "DiesOfABadRequest": "bad_bodies",
}


@pytest.mark.parametrize("fault", CAUGHT_BY)
def test_fault_is_caught(fault: str) -> None:
    class Faulty(LiveBackendConformance):
        plugin = ToyBackend()
        model = CHECKPOINT
        options = {"engine": fault}  # noqa: RUF012
        check_timeout_s = 3.0

    (row,) = run_suite(Faulty, only=frozenset({CAUGHT_BY[fault]}))
    assert row.outcome is Outcome.FAILED, row
    assert row.detail


def test_every_fault_has_its_check() -> None:
    from toy_backend.faults import ENGINES

    assert set(CAUGHT_BY) == set(ENGINES) - {"Honest"}
