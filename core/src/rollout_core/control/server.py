"""Serves the control calls of one controller over HTTP, on this machine's loopback only, to whoever has the token."""

from __future__ import annotations

import asyncio
import os
import secrets
import threading
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from aiohttp import web

from rollout_core import __version__
from rollout_core.control.address import FILE_NAME, Address, Connection, write_connection
from rollout_core.control.service import Answer, ControlService
from rollout_core.control.wire import VERSION_HEADER, encode, problem_of, refuse_other_version
from rollout_core.controller import Controller
from rollout_core.errors import ControlError, RolloutError

__all__ = ["ControlServer"]

_HOST = "127.0.0.1"
_LARGEST_CALL = 64 * 2**20
_UNAUTHORIZED, _UPGRADE = 401, 426


class ControlServer:
    """Lets other processes of this user use a controller, while the ``with`` block lasts.

    ``with Controller(plugins) as controller, ControlServer(controller, "control.json"): ...``
    """

    def __init__(self, controller: Controller, file: str | Path | None = None) -> None:
        """Nothing listens before :meth:`start`.

        Args:
            controller: whose engines are used.
            file: where URL and token are written, with mode 0600. Unset: ``control.json`` in the controller's
                ``log_dir``.
        """
        self.file = Path(file) if file is not None else controller.log_dir / FILE_NAME
        self._service = ControlService(controller)
        self._token = secrets.token_urlsafe(32)
        self._stopping = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="rollout-control-server", daemon=True)
        self._started: Future[Connection] = Future()

    def start(self) -> Connection:
        """Listen, and write the connection file.

        Raises:
            OutputError: the file cannot be written.
        """
        self._thread.start()
        return self._started.result()

    def close(self) -> None:
        """Stop listening and remove the connection file; twice is harmless."""
        if self._loop is None:
            return
        with suppress(RuntimeError):  # the loop is closed already
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            if self._started.done():
                raise
            self._started.set_exception(error)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        app = web.Application(client_max_size=_LARGEST_CALL)
        app.router.add_post("/{call}", self._answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            await web.TCPSite(runner, _HOST, 0).start()
            connection = Connection(f"http://{_HOST}:{runner.addresses[0][1]}", self._token, os.getpid())
            write_connection(self.file, connection)
            self._service.start()
            self._started.set_result(connection)
            await self._stopping.wait()
        finally:
            await self._service.close()
            self._remove_file()
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        given = request.headers.get("authorization", "")
        if not secrets.compare_digest(given.encode(errors="surrogateescape"), f"Bearer {self._token}".encode()):
            return _refusal(_UNAUTHORIZED, ControlError("the token is wrong; read the connection file again"))
        try:
            refuse_other_version(request.headers.get(VERSION_HEADER), __version__)
        except ControlError as error:
            return _refusal(_UPGRADE, error)
        return _response(await self._service.answer(request.match_info["call"], await request.read()))

    def _remove_file(self) -> None:
        """Unless another controller has written it anew."""
        with suppress(RolloutError, OSError):
            if Address(self.file).read().token == self._token:
                self.file.unlink()


def _refusal(status: int, error: ControlError) -> web.Response:
    return _response(Answer(status, encode(problem_of(error))))


def _response(answer: Answer) -> web.Response:
    return web.Response(status=answer.status, body=answer.content, content_type="application/json")
