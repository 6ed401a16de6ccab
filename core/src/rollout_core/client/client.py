"""Sends requests from the caller's process straight to the engines, and brings each back exactly once."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple, Self

import httpx

from rollout_core.client.admission import Admission
from rollout_core.client.connections import AiohttpConnections
from rollout_core.client.continuation import ended_result, join_prior
from rollout_core.client.gate import ClientGate
from rollout_core.client.plane import ControlPlane
from rollout_core.client.result import aborted_result, check_result, failed_result, status_of
from rollout_core.client.router import Router
from rollout_core.client.staleness import aged_status, lag_of
from rollout_core.client.transport import Transport
from rollout_core.control import Connection, RemotePlane
from rollout_core.controller import Endpoint
from rollout_core.errors import EngineError, PluginError, ReplyError, RequestError, UnavailableError
from rollout_core.types import GenerateRequest, GenerateResult, Reply, SampleParams
from rollout_core.worker import authorization

__all__ = ["RolloutClient"]

_BUSY = (429, 503)
_BACKOFF_S = (0.05, 2.0)


class RolloutClient:
    """An asynchronous client for any number of concurrent requests; use it in one event loop.

    ``async with RolloutClient(controller) as client: result = await client.generate(request)``
    """

    def __init__(self, controller: ControlPlane, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        """Connect to a controller.

        Args:
            controller: whose engines are used.
            transport: replaces the connections to the engines; for tests.
        """
        config = controller.plugins.config
        self._controller = controller
        self._backend = controller.plugins.backend
        self._admission = Admission(self._backend, controller.model, controller.context_length)
        self._router = Router(config.session_timeout_s)
        self._max_attempts = config.max_retries_per_sample + 1
        self._patience_s = config.rollout_timeout_s
        self._partial_rollout = config.partial_rollout
        self._max_staleness = config.max_staleness
        self._given_transport = transport
        self._transport: Transport | None = None
        self._gate: ClientGate | None = None

    @classmethod
    def connect(cls, where: str | Path | Connection) -> Self:
        """A client of a controller in another process, which a :class:`rollout_core.ControlServer` serves.

        Blocks for a moment: what the controller serves is asked, and the same plugins are loaded here. When the
        controller is lost, the client goes on with the engines that it knows for the rest of its lease
        (``client_lease_s``); after that requests fail, until the controller is there again.

        Args:
            where: the connection file, or a folder with a ``control.json``.

        Raises:
            ControlError: nobody answers there, or it refuses this process.
            PluginError: the run's plugins cannot be loaded here.
        """
        return cls(RemotePlane.connect(where))

    async def __aenter__(self) -> Self:
        self._gate = ClientGate(self._controller)
        self._transport = Transport(authorization(self._backend), self._given_transport or AiohttpConnections())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close every connection, which cancels what is in flight; twice is harmless."""
        if self._gate is not None:
            self._gate.close()
            self._gate = None
        if self._transport is not None:
            await self._transport.aclose()
            self._transport = None

    async def generate(
        self,
        request: GenerateRequest,
        *,
        prior: GenerateResult | None = None,
        when_paused: Literal["wait", "abort"] = "wait",
    ) -> GenerateResult:
        """Draw one sample. Whatever happens to it, it comes back once.

        Args:
            request: what to draw.
            prior: an aborted result of the same prompt, to be continued; the token budget counts what it has. Where
                the config switches partial rollouts off, the sample is drawn again from its prompt.
            when_paused: while generation is paused, ``wait`` until it continues, or come back ``abort``-ed at once.

        Returns:
            A result with status ``completed``, ``aborted`` (with the tokens it had), ``expired`` (its oldest token is
            more than ``max_staleness`` versions old) or ``failed`` (with the reason in ``error``). A continued
            request comes back whole: the tokens of its prior and the new ones.

        Raises:
            asyncio.CancelledError: the caller cancelled; the engine stops working on the request.
            EngineError: the client is not open.
        """
        self._check_open()
        if prior is not None:
            request = replace(request, prior=prior)
        if request.prior is not None and not self._partial_rollout:
            request = replace(request, prior=None)
        started, started_at = time.perf_counter(), time.time()
        try:
            self._admission.check(request)
            answer = self._without_request(request) or await self._attempt(request, when_paused)
        except (RequestError, EngineError, PluginError) as error:
            answer = _Answer(failed_result(request, str(error)), None, getattr(error, "attempts", 0))
        result, view = answer.result, self._controller.view
        lag = lag_of(result, view)
        return replace(
            result,
            status=aged_status(status_of(result), lag, self._max_staleness),
            engine=answer.engine or result.engine,
            attempts=answer.attempts,
            lag=lag,
            cache_policy=view.cache_policy,
            timing=replace(result.timing, total_s=time.perf_counter() - started, started_at=started_at),
        )

    async def generate_group(
        self, prompt_ids: Sequence[int], params: SampleParams, n: int, group_id: str | None = None
    ) -> list[GenerateResult]:
        """Draw ``n`` samples of one prompt, in order; they share an engine, which computes the prompt once.

        With ``params.seed`` the samples take the seeds ``seed``, ``seed + 1``, and so on.
        """
        first = GenerateRequest(tuple(prompt_ids), params)
        group = group_id or first.request_id
        requests = [
            replace(first, request_id=f"{group}-{i}", group_id=group, params=_with_seed(params, i)) for i in range(n)
        ]
        return await asyncio.gather(*map(self.generate, requests))

    def _without_request(self, request: GenerateRequest) -> _Answer | None:
        """The answer when there is nothing to send: the prior had reached its end, or is too old to go on with."""
        prior, limit = request.prior, self._max_staleness
        if prior is None:
            return None
        if limit is not None and lag_of(prior, self._controller.view) > limit:
            return _Answer(aborted_result(request), None, prior.attempts)
        ended = ended_result(request, self._controller.model.eos_token_ids)
        return None if ended is None else _Answer(ended, None, prior.attempts)

    async def _attempt(self, request: GenerateRequest, when_paused: str) -> _Answer:
        """Send the request until an engine serves it: elsewhere after a fault, later while engines are busy."""
        gate, transport = self._check_open()
        failed_on: list[str] = []
        busy = _Busy(self._patience_s)
        while True:
            with gate.passing() as passed:
                if passed:
                    endpoint = self._endpoint(request, failed_on)
                    try:
                        reply = await self._send(transport, endpoint, request)
                        if reply.status not in _BUSY:
                            result = self._result(endpoint, request, reply)
                            return _Answer(result, endpoint.engine, len(failed_on) + 1)
                        busy.note(reply)
                    except _EngineFault as fault:
                        failed_on.append(endpoint.engine)
                        self._controller.report_fault(endpoint.engine, str(fault))
                        if len(failed_on) >= self._max_attempts:
                            raise _Exhausted(f"{fault} (sent {len(failed_on)} times)", len(failed_on)) from fault
            if not passed and when_paused == "abort":
                return _Answer(aborted_result(request), None, len(failed_on))
            await (busy.wait() if passed else gate.wait_open())

    def _endpoint(self, request: GenerateRequest, failed_on: Sequence[str]) -> Endpoint:
        view = self._controller.view
        endpoint = self._router.pick(view.endpoints, request.affinity, failed_on)
        if endpoint is None:
            reasons = "; ".join(f"{engine}: {reason}" for engine, reason in view.reasons.items())
            raise UnavailableError(f"no engine is in service{': ' + reasons if reasons else ''}")
        return endpoint

    async def _send(self, transport: Transport, endpoint: Endpoint, request: GenerateRequest) -> Reply:
        call = self._backend.build_payload(request)
        try:
            with self._router.sending(endpoint):
                reply = await transport.send(endpoint.url, call)
        except httpx.TransportError as error:
            reason = str(error) or type(error).__name__
            raise _EngineFault(f"{endpoint.engine} was lost while it worked on the request: {reason}") from error
        if reply.status >= 500 and reply.status not in _BUSY:
            raise _EngineFault(f"{endpoint.engine} answered {reply.status}: {reply_message(reply)}")
        return reply

    def _result(self, endpoint: Endpoint, request: GenerateRequest, reply: Reply) -> GenerateResult:
        self._controller.report_success(endpoint.engine)
        if not reply.ok:
            raise RequestError(f"{endpoint.engine} refused the request ({reply.status}): {reply_message(reply)}")
        try:
            result = join_prior(request, self._backend.parse_response(request, reply))
            return check_result(request, result, self._controller.model.vocab_size)
        except ReplyError as error:
            raise ReplyError(f"{endpoint.engine} gave a reply that breaks the rules: {error}") from error

    def _check_open(self) -> tuple[ClientGate, Transport]:
        if self._gate is None or self._transport is None:
            raise EngineError("the client is not open; use it in 'async with RolloutClient(controller) as client:'")
        return self._gate, self._transport


class _Answer(NamedTuple):
    """A result, who gave it, and how many times it was asked for."""

    result: GenerateResult
    engine: str | None
    attempts: int


class _Busy:
    """How long engines have been busy, and how long to wait before asking again."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._since: float | None = None
        self._delay_s = 0.0

    def note(self, reply: Reply) -> None:
        """An engine was busy; raises when engines have been for too long."""
        now = time.monotonic()
        self._since = self._since or now
        if now - self._since > self._patience_s:
            raise UnavailableError(f"engines were busy for {self._patience_s:g} s: {reply_message(reply)}")
        first_s, longest_s = _BACKOFF_S
        self._delay_s = min(max(first_s, 2 * self._delay_s), longest_s)

    async def wait(self) -> None:
        """Not at all after a fault, longer each time after a busy reply."""
        await asyncio.sleep(self._delay_s * random.uniform(0.5, 1.5))


class _EngineFault(EngineError):
    """A transport error or a 5xx: worth another engine."""


class _Exhausted(EngineError):
    def __init__(self, message: str, attempts: int) -> None:
        super().__init__(message)
        self.attempts = attempts


def _with_seed(params: SampleParams, index: int) -> SampleParams:
    return params if params.seed is None else params.model_copy(update={"seed": params.seed + index})


def reply_message(reply: Reply) -> str:
    """What the engine says of an error; engines differ in where they say it."""
    body = reply.body
    if isinstance(body, dict):
        body = body.get("error", body.get("message", body.get("detail", body)))
        if isinstance(body, dict):
            body = body.get("message", body)
    return str(body).strip()[:2000] or "no message"
