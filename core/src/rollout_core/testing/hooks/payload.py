"""Checks of ``build_payload``: what is asked for is what is sent."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from rollout_core.client.admission import Admission
from rollout_core.errors import CapabilityError
from rollout_core.model import ModelInfo
from rollout_core.testing.parameters import PARAMETERS, Parameter
from rollout_core.testing.suite import Suite, check, expect, not_offered
from rollout_core.types import (
    Capability,
    FinishReason,
    GenerateRequest,
    GenerateResult,
    HttpCall,
    SampleParams,
    Status,
)

__all__ = ["PayloadChecks"]

_PROMPT = (11, 22, 33, 44, 55)
_PRIOR = (66, 77, 88)
_MODEL = ModelInfo("conformance-model", "ConformanceModel", 1000, 512, "")


class PayloadChecks(Suite):
    """The hook ``build_payload``."""

    @check()
    def test_payload_is_json(self) -> None:
        """A payload is plain JSON under a path of the server."""
        call = self._payload(SampleParams(max_tokens=16))
        expect(call.path.startswith("/"), f"the path is {call.path!r}; start it with /")
        expect(call.body is not None, "the payload has no body")
        try:
            json.dumps(call.body, allow_nan=False)
        except (TypeError, ValueError) as error:
            expect(False, f"the payload cannot be sent as JSON: {error}")

    @check()
    def test_payload_has_the_exact_prompt(self) -> None:
        """The prompt's token ids are sent as they are, never as text."""
        body = self._payload(SampleParams(max_tokens=16)).body
        expect(list(_PROMPT) in list(_lists(body)), f"no list of the payload equals the prompt's ids: {body}")

    @check()
    def test_payload_ignores_no_parameter(self) -> None:
        """Changing any sampling parameter that is offered changes the payload."""
        for parameter in self._offered():
            routed = {"routed_experts": True} if parameter.name == "routed_experts" else {}
            backend = self.load(**routed).backend
            before = backend.build_payload(_request(parameter.without))
            after = backend.build_payload(_request(parameter.changed))
            expect(before != after, f"{parameter.name} = {parameter.value!r} changes nothing in the payload")

    @check()
    def test_payload_refuses_what_is_not_offered(self) -> None:
        """A sampling parameter that is not declared is refused by name."""
        for parameter in PARAMETERS:
            if parameter.capability is None or self.face.offers(parameter.capability):
                continue
            try:
                self._admit_and_build(_request(parameter.changed))
            except CapabilityError as error:
                named = any(name in str(error) for name in (parameter.name, *parameter.with_others))
                expect(named, f"the refusal does not name {parameter.name}: {error}")
            else:
                expect(False, f"{parameter.name} is not offered, but a request with it was accepted")

    @check(Capability.CONTINUATION)
    def test_payload_continues_a_prior(self) -> None:
        """The ids of a prior result are sent after the prompt's."""
        body = self.face.build_payload(_continued()).body
        lists = list(_lists(body))
        whole, parts = [*_PROMPT, *_PRIOR], (list(_PROMPT), list(_PRIOR))
        expect(
            whole in lists or all(part in lists for part in parts),
            f"the prior's ids {list(_PRIOR)} do not follow the prompt's in the payload: {body}",
        )

    @check()
    def test_payload_refuses_a_prior_when_not_offered(self) -> None:
        """A prior result is refused by a backend that cannot continue it."""
        if self.face.offers(Capability.CONTINUATION):
            not_offered("a refusal of continuation, which the backend declares")
        try:
            self._admit_and_build(_continued())
        except CapabilityError:
            return
        expect(False, "continuation is not offered, but a request with a prior was accepted")

    @check()
    def test_payload_is_pure(self) -> None:
        """The same request gives the same payload, whatever was done with an earlier one."""
        request = _request(SampleParams(max_tokens=16))
        options = copy.deepcopy(self.face.config.backend_options)
        first = self.face.build_payload(request)
        kept = copy.deepcopy(first)
        _spoil(first.body)
        second = self.face.build_payload(request)
        expect(second == kept, f"two payloads of one request differ: {kept.body} and {second.body}")
        expect(self.face.config.backend_options == options, "build_payload changed the config")

    def _offered(self) -> Iterator[Parameter]:
        for parameter in PARAMETERS:
            needed = [parameter.capability, Capability.STOP_STRINGS if parameter.with_others.get("stop") else None]
            if all(capability is None or self.face.offers(capability) for capability in needed):
                yield parameter

    def _payload(self, params: SampleParams) -> HttpCall:
        return self.face.build_payload(_request(params))

    def _admit_and_build(self, request: GenerateRequest) -> HttpCall:
        """As the client does: core refuses what is not declared, the plugin what its engine lacks beyond that."""
        backend = self.load(routed_experts=True).backend if request.params.routed_experts else self.face
        Admission(backend, _MODEL, _MODEL.context_length).check(request)
        return backend.build_payload(request)


def _request(params: SampleParams) -> GenerateRequest:
    return GenerateRequest(_PROMPT, params, request_id="conformance-1")


def _continued() -> GenerateRequest:
    prior = GenerateResult(
        "conformance-0",
        _PROMPT,
        _PRIOR,
        logprobs=(-1.0, -2.0, -3.0),
        finish_reason=FinishReason.ABORT,
        status=Status.ABORTED,
        weight_versions=(0, 0, 0),
    )
    return GenerateRequest(_PROMPT, SampleParams(max_tokens=16), request_id="conformance-1", prior=prior)


def _lists(value: Any) -> Iterator[list[Any]]:
    """Every list inside a JSON value."""
    if isinstance(value, list | tuple):
        yield list(value)
    if isinstance(value, dict):
        value = list(value.values())
    for item in value if isinstance(value, list | tuple) else ():
        yield from _lists(item)


def _spoil(value: Any) -> None:
    """Empty every table and list inside a JSON value."""
    if isinstance(value, dict | list):
        for item in list(value.values()) if isinstance(value, dict) else list(value):
            _spoil(item)
        value.clear()
