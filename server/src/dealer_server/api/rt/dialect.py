"""How are calls of the RT face let in and answered?

A dealer's mode says how: signed as our own calls are, or by AppKey alone from an address of its allowlist; `off` is an
unknown path. What was understood is answered 200, a failure too.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from dealer_server.api import replies
from dealer_server.api.authenticate import Authenticator, Head
from dealer_server.api.rt import errors
from dealer_server.operations.cache import Caller
from dealer_server.rules import refusal
from dealer_server.rules.access.rate_limit import Allowance

PREFIX = "/api/v1/open/"
encode = msgspec.json.Encoder().encode
_BEFORE_OBJ = b'{"success":true,"errorCode":"0","errorMsg":null,"errorMessage":null,"obj":'


class RtDialect:
    prefix = PREFIX.encode()

    def __init__(self, authenticator: Authenticator):
        self._authenticator = authenticator

    def refuse_content_type(self, head: Head, body: bytes) -> refusal.Refusal | None:
        """Whatever it says, a body is read as JSON: public clients leave the header out."""
        return None

    async def authenticate(self, head: Head, peer: str, body: bytes, writes: bool) -> tuple[Caller, Allowance | None]:
        known = self._authenticator.known_caller(head)
        if known is not None and known.access.rt_face == "signed":
            return await self._authenticator.authenticate(head, peer, body, writes)
        caller = await self._authenticator.named_caller(head, peer)
        if caller.access.rt_face == "off":
            raise refusal.PathUnknown("the RT face is not switched on for this AppKey; ask the operator")
        if caller.access.rt_face == "access-code":
            return await self._authenticator.admit_by_address(caller, head, peer, writes)
        return await self._authenticator.authenticate(head, peer, body, writes)

    def succeeded(
        self, answer: Any, trace: bytes, request_id: bytes | None, allowance: Allowance | None
    ) -> tuple[bytes, Sequence[bytes]]:
        parts = _BEFORE_OBJ, answer if type(answer) is bytes else encode(answer), b"}"
        return replies.head_lines(sum(map(len, parts)), trace, request_id, allowance), parts

    def failed(
        self, why: refusal.Refusal | None, trace: bytes, request_id: bytes | None, allowance: Allowance | None
    ) -> tuple[int, bytes, bytes]:
        if why is None:
            why = refusal.Refusal(f"unexpected server error; nothing was done in part (trace {trace.decode()})")
        text = errors.message(why)
        body = encode(
            {
                "success": False,
                "errorCode": errors.number(why.code),
                "errorMsg": text,
                "errorMessage": text,
                "obj": None,
            }
        )
        return errors.status(why.code), replies.refusal_head(why, len(body), trace, request_id, allowance), body
