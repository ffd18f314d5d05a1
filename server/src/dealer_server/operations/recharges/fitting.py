"""For which eSIMs are TOPUP packages asked for? /package/list (specification 4.9)"""

from dealer_server.db.database import Database
from dealer_server.operations.profiles.profile_key import profile_key
from dealer_server.rules import refusal
from dealer_server.store.profiles import iccid as iccids
from dealer_server.store.recharges import recharge as recharges
from esim_dealer.wire import calls


async def fitting(database: Database, tenant_id: int, call: calls.PackageList) -> str | None:
    """The package of the eSIMs that are to be recharged; None where the call names none. Raises 000111, 310404."""
    named = [call.profile_id, call.iccid, call.for_package_code or None]
    if named == [None, None, None]:
        return None
    if sum(name is not None for name in named) > 1:
        raise refusal.ParameterNotAccepted("profileId, iccid and forPackageCode exclude each other; send one of them")
    if call.for_package_code:
        return call.for_package_code
    profile_id, iccid = profile_key(call.profile_id, call.iccid)
    async with database.connection() as connection:
        [key] = await iccids.locate(connection, [(tenant_id, profile_id, iccid)])
        if key is None:
            raise refusal.ProfileNotFound
        targets = await recharges.targets(connection, [(key[0], key[2])])
        return targets[key[0], key[2]].package_code
