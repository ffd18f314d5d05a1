"""A dealer who buys without pause and remembers every answer. Independent of the SDK and of the server's code."""

import hashlib
import hmac
import http.client
import json
import threading
import time
import uuid
from dataclasses import dataclass, field
from typing import NamedTuple

PACKAGE, PRICE = "LAB-1GB", "1.80"
ANSWER_SECONDS = 60.0


class Answer(NamedTuple):
    """`code`: of the envelope; "" where no answer came. Times are those of time.monotonic()."""

    transaction_id: str
    code: str
    order_no: str
    duplicate: bool
    outcome: str
    asked: float
    answered: float


@dataclass
class Dealer:
    """Each thread buys at one address after the other. `refused`: told that nothing was done.
    What had another answer or none stays in `unknown`."""

    addresses: list[tuple[str, int]]
    app_key: str
    app_secret: str
    answers: list[Answer] = field(default_factory=list)
    acknowledged: dict[str, str] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    doubled: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _over: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def begin(self, threads: int, pause: float) -> None:
        for number in range(threads):
            thread = threading.Thread(target=self._buy, args=(number, pause), daemon=True)
            thread.start()
            self._threads.append(thread)

    def end(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def settle(self) -> int:
        """Sends what had no clear answer again, until it has one; how many of those had been placed already."""
        before = 0
        while self.unknown:
            for transaction_id in sorted(self.unknown):
                before += self._order(self.addresses[0], transaction_id).duplicate
        return before

    def _buy(self, number: int, pause: float) -> None:
        while not self._over.wait(pause):
            number += 1
            self._order(self.addresses[number % len(self.addresses)], f"lab-{uuid.uuid4().hex}")

    def _order(self, address: tuple[str, int], transaction_id: str) -> Answer:
        line = {"packageCode": PACKAGE, "quantity": 1, "price": PRICE}
        body = json.dumps({"transactionId": transaction_id, "amount": PRICE, "items": [line]}).encode()
        asked = time.monotonic()
        envelope = self._post(address, "/open-api/v1/esim/order", body)
        data = envelope.get("data") or {}
        answer = Answer(
            transaction_id,
            envelope.get("code", ""),
            data.get("orderNo", ""),
            bool(data.get("duplicate")),
            data.get("outcome", ""),
            asked,
            time.monotonic(),
        )
        with self._lock:
            self._note(answer)
        return answer

    def _note(self, answer: Answer) -> None:
        self.answers.append(answer)
        if answer.code == "000000":
            if self.acknowledged.setdefault(answer.transaction_id, answer.order_no) != answer.order_no:
                self.doubled.append(answer.transaction_id)
            self.unknown.discard(answer.transaction_id)
        elif answer.code == "900001" and not answer.outcome and answer.transaction_id not in self.unknown:
            self.refused.add(answer.transaction_id)
        elif answer.transaction_id not in self.acknowledged:
            self.unknown.add(answer.transaction_id)

    def _post(self, address: tuple[str, int], path: str, body: bytes) -> dict:
        timestamp, request_id = str(int(time.time() * 1000)), str(uuid.uuid4())
        text = (timestamp + request_id + self.app_key).encode() + body
        connection = http.client.HTTPConnection(*address, timeout=ANSWER_SECONDS)
        try:
            headers = {
                "Content-Type": "application/json",
                "RT-AccessCode": self.app_key,
                "RT-RequestID": request_id,
                "RT-Timestamp": timestamp,
                "X-Signature": hmac.new(self.app_secret.encode(), text, hashlib.sha256).hexdigest(),
            }
            connection.request("POST", path, body, headers)
            return json.loads(connection.getresponse().read())
        except (OSError, http.client.HTTPException, ValueError):
            return {}
        finally:
            connection.close()
