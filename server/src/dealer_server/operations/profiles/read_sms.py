"""Which SMS were sent to a profile? Their dealer reads the texts; the audit log records each time that an operator
does."""

from typing import NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys, sms_context
from dealer_server.store.audit.audit_log import record_act
from dealer_server.store.profiles import sms as sms_store
from dealer_server.store.profiles.sms import Sms


class SmsText(NamedTuple):
    """An SMS with its text; None: it is gone, because of its age."""

    sms: Sms
    text: str | None


async def read_sms(
    connection: Connection, data_keys: DataKeys, tenant_id: int, profile_id: int, limit: int
) -> list[SmsText]:
    """The profile's latest SMS, newest first."""
    found = await sms_store.of_profile(connection, tenant_id, profile_id, limit)
    return [SmsText(sms, _text(data_keys, tenant_id, sms)) for sms in found]


def _text(data_keys: DataKeys, tenant_id: int, sms: Sms) -> str | None:
    if sms.message is None:
        return None
    return data_keys.open(sms.message, sms_context(tenant_id, sms.sms_id)).decode()


async def reveal_sms(
    database: Database, data_keys: DataKeys, tenant_id: int, profile_id: int, limit: int, author: str
) -> list[SmsText]:
    """The same for an operator. Nothing is recorded where there are none."""

    async def work(connection: Connection) -> list[SmsText]:
        found = await read_sms(connection, data_keys, tenant_id, profile_id, limit)
        if found:
            await record_act(connection, author, "profile.view_sms", tenant_id, {"profileId": profile_id})
        return found

    return await database.run(work)
