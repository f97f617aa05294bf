"""What clients of stateless Streamable HTTP post to whichever process, and the process it is for."""

from typing import Protocol

from mcp.types import JSONRPCError, JSONRPCResponse

from mcpbridge import asking


class Relay(Protocol):
    """Brings messages to the process they are for."""

    @property
    def channel(self) -> str: ...

    async def bring(self, channel: str, session: str, body: bytes) -> int:
        """An HTTP status: 202, 404 where nobody waits there, 503."""


async def handed_over(answer: JSONRPCResponse | JSONRPCError, body: bytes, session: str, relay: Relay) -> int:
    """Bring a client's answer, posted as `body`, to the call that waits for it. Gives an HTTP status."""
    channel = asking.channel_of(answer)
    if channel is None:
        return 404
    if channel == relay.channel:
        return 202 if asking.take(session, answer) else 404
    return await relay.bring(channel, session, body)
