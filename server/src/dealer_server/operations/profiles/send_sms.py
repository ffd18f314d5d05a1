"""How is an SMS sent to a profile? /esim/profile/sms (specification 4.16)

The call writes it down. A built-in supplier has then sent it; any other is asked by the worker
(fulfillment/sms_queue.py).
"""

import hmac
from collections.abc import Callable, Mapping

from msgspec import UNSET

from dealer_server import failpoints, store
from dealer_server.clock import Clock
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys, sms_context
from dealer_server.operations.profiles.profile_key import profile_key
from dealer_server.rules import refusal
from dealer_server.rules.lifecycle.sms import Recipient, refuse, refuse_soon
from dealer_server.rules.orders import identity
from dealer_server.store.audit.audit_log import record_act
from dealer_server.store.profiles import iccid as iccids
from dealer_server.store.profiles import sms as sms_store
from dealer_server.store.profiles.sms import NewSms
from dealer_server.suppliers import registry
from dealer_server.suppliers.contract import Builtin
from esim_dealer.wire import calls


class SmsSender:
    """Takes SMS, from the API and from the console. `requested` is called when a supplier is to be asked."""

    def __init__(
        self,
        database: Database,
        data_keys: DataKeys,
        suppliers: Mapping[str, Builtin],
        clock: Clock,
        requested: Callable[[], None],
    ):
        self._database = database
        self._data_keys = data_keys
        self._digest_key = data_keys.derive(b"digest of an SMS")
        self._suppliers = suppliers
        self._clock = clock
        self._requested = requested

    async def send(self, tenant_id: int, call: calls.SendSms, author: str | None = None) -> calls.Sms:
        """A repeat gives the original and sends nothing. `author`: the person who sends it at the console, recorded in
        the audit log. Raises 000105, 000111, 310402, 310404, 200022, 200010, 200002, 101013."""
        named = profile_key(call.profile_id, call.iccid)

        async def work(connection: Connection) -> calls.Sms:
            return await self._write(connection, tenant_id, named, call, author)

        answer = await self._database.run(work)
        failpoints.hit("sms.committed")
        if answer.status == "PENDING" and not answer.duplicate:
            self._requested()
        return answer

    async def possible(self, connection: Connection, tenant_id: int, profile_id: int) -> bool:
        """Whether an SMS can be sent to this profile, but for the limit of one a minute."""
        recipient = await sms_store.recipient(connection, tenant_id, profile_id)
        return recipient is not None and refuse(recipient, self._sends(recipient)) is None

    async def _write(
        self,
        connection: Connection,
        tenant_id: int,
        named: tuple[int | None, str | None],
        call: calls.SendSms,
        author: str | None,
    ) -> calls.Sms:
        """Under a lock of the profile's order, so that its state stays and calls for it are decided one by one."""
        [located] = await iccids.locate(connection, [(tenant_id, *named)])
        if located is not None:
            await store.order.lock(connection, [located[:2]])
        profile_id = None if located is None else located[2]
        original = await sms_store.find(connection, tenant_id, call.transaction_id)
        if original is None:
            if profile_id is None:
                raise refusal.ProfileNotFound
            new = await self._new(connection, tenant_id, profile_id, call)
            if await sms_store.add(connection, new):
                if author is not None:
                    detail = {"smsNo": identity.sms_no(new.sms_id), "profileId": profile_id}
                    await record_act(connection, author, "profile.send_sms", tenant_id, detail)
                failpoints.hit("sms.written")
                return calls.Sms(sms_no=identity.sms_no(new.sms_id), status=new.status, duplicate=False)
            original = await sms_store.find(connection, tenant_id, call.transaction_id)
            assert original is not None, "a call for another profile has just used the transactionId"
        if profile_id is None or not hmac.compare_digest(original.digest, self._digest(profile_id, call.message)):
            raise refusal.TransactionIdReused(
                "transactionId was already used for another SMS; send a new one for a new SMS"
            )
        return calls.Sms(
            sms_no=identity.sms_no(original.sms_id),
            status=original.status,
            fail_reason=original.fail_reason or UNSET,
            duplicate=True,
        )

    async def _new(self, connection: Connection, tenant_id: int, profile_id: int, call: calls.SendSms) -> NewSms:
        """Raises 200022, 200010, 200002, 101013."""
        now = self._clock()
        recipient = await sms_store.recipient(connection, tenant_id, profile_id)
        assert recipient is not None, "its order is locked"
        latest_at = await sms_store.latest_at(connection, tenant_id, profile_id)
        refused = refuse(recipient, self._sends(recipient)) or refuse_soon(latest_at, now)
        if refused is not None:
            raise refused
        assert recipient.iccid is not None, "a profile without codes is refused"
        at_once = recipient.supplier in self._suppliers
        sms_id = await store.order.next_block(connection, "sms", identity.first_id_at(int(now.timestamp())), 1)
        return NewSms(
            tenant_id=tenant_id,
            sms_id=sms_id,
            transaction_id=call.transaction_id,
            profile_id=profile_id,
            digest=self._digest(profile_id, call.message),
            message=self._data_keys.seal(call.message.encode(), sms_context(tenant_id, sms_id)),
            supplier=recipient.supplier,
            iccid=recipient.iccid,
            status="SENT" if at_once else "PENDING",
            created_at=now,
            finished_at=now if at_once else None,
            due_at=None if at_once else now,
        )

    def _sends(self, recipient: Recipient) -> bool:
        """Whether its supplier sends SMS."""
        builtin = recipient.supplier in self._suppliers
        return registry.caps_of(recipient.supplier if builtin else recipient.kind or "").sms

    def _digest(self, profile_id: int, message: str) -> bytes:
        """16 bytes that two calls share when they ask for the same. Keyed: texts are short enough to be guessed."""
        return hmac.digest(self._digest_key, f"{profile_id}\0{message}".encode(), "sha256")[:16]
