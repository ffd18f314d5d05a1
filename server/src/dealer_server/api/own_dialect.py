"""How are calls of our own API let in and answered? (specification 1, 5, 7)"""

from collections.abc import Sequence
from typing import Any

from dealer_server.api import authenticate, replies
from dealer_server.api.authenticate import Authenticator
from dealer_server.rules.access.rate_limit import Allowance
from esim_dealer.wire import envelope

encode = envelope.encoder.encode


class OwnDialect:
    prefix = b"/open-api/"

    def __init__(self, authenticator: Authenticator):
        self.refuse_content_type = authenticate.refuse_content_type
        self.authenticate = authenticator.authenticate
        self.failed = replies.failed

    def succeeded(
        self, answer: Any, trace: bytes, request_id: bytes | None, allowance: Allowance | None
    ) -> tuple[bytes, Sequence[bytes]]:
        parts = envelope.success(answer if type(answer) is bytes else encode(answer))
        return replies.head_lines(sum(map(len, parts)), trace, request_id, allowance), parts
