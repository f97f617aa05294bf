"""The loopback OpenAI-compatible server in one mood for as long as a test wants, and DevFlow's settings for it."""

import time
from contextlib import suppress
from typing import Any

from tests.fakes.openai_server import OpenAiServer, Reply, Request, _Handler

EMBEDDINGS, CHAT = "/v1/embeddings", "/v1/chat/completions"
DRIP_SECONDS = 20
FLOOD_BYTES = 1 << 30


class MoodyServer(OpenAiServer):
    """`mood`: how every request (`mood_of`: those of a path) is answered until it is taken back.

    `patience`: so many requests are answered well before the mood shows. `drips` and `floods` name a path whose
    answer comes a blank at a time, or never ends. `texts` were embedded well.
    """

    def __init__(self, *, dimensions: int = 64) -> None:
        super().__init__(dimensions=dimensions)
        self.mood: Reply | None = None
        self.mood_of: dict[str, Reply] = {}
        self.patience = 0
        self.drips = ""
        self.floods = ""
        self.texts: list[str] = []

    def _next(self, request: Request) -> Reply:
        reply = super()._next(request)
        if (mood := self.mood_of.get(request.path, self.mood)) is not None:
            self.patience -= 1
            if self.patience < 0:
                return mood
        if request.path == EMBEDDINGS and reply.status == 200:
            self.texts += request.body["input"]
        return reply

    def send_endlessly(self, handler: _Handler) -> bool:
        """Whether the answer to this request was a drip or a flood."""
        if handler.path not in (self.drips, self.floods):
            return False
        handler.close_connection = True
        blanks = b" " * 65536 if handler.path == self.floods else b" "
        with suppress(OSError):
            handler.wfile.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % FLOOD_BYTES
            )
            until = time.monotonic() + DRIP_SECONDS
            while time.monotonic() < until:
                handler.wfile.write(blanks)
                handler.wfile.flush()
                if len(blanks) == 1:
                    time.sleep(0.2)
        return True

    @property
    def embedding(self) -> dict[str, str]:
        """The settings that make this server the embedder."""
        return {
            "DEVFLOW_EMBEDDING_PROVIDER": "openai",
            "DEVFLOW_EMBEDDING_BASE_URL": self.url,
            "DEVFLOW_EMBEDDING_MODEL": "bag-of-words",
        }

    @property
    def reranking(self) -> dict[str, str]:
        """The settings that make this server the model that reranks."""
        return {"DEVFLOW_LLM_BASE_URL": self.url, "DEVFLOW_LLM_MODEL": "orderly"}


_send = _Handler._send


def _send_or_go_on(self: _Handler, *given: Any) -> None:
    fake = self.fake
    if isinstance(fake, MoodyServer) and fake.send_endlessly(self):
        return
    _send(self, *given)


_Handler._send = _send_or_go_on  # type: ignore[method-assign]  # its only seam
