"""Who may use the console? People are made, changed and reset by admins; they sign in, and keep their own account.

Passwords are compared outside of transactions. Each try is counted before.
"""

import asyncio
import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec
import structlog

from dealer_server import store
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys
from dealer_server.operations.tenants.tenant import OperatorError
from dealer_server.operations.users import password as passwords
from dealer_server.operations.users.password import Busy, Passwords
from dealer_server.rules.access import totp
from dealer_server.store.console import user as rows
from dealer_server.store.console.user import Account, Listed, Place, Session

OPERATOR_ROLES = ("admin", "finance", "support", "readonly")
DEALER_ROLES = ("admin", "developer", "finance")
IDLE = timedelta(minutes=30)
LONGEST = timedelta(hours=12)
CODE_WITHIN = timedelta(minutes=5)
WINDOW = timedelta(minutes=15)
TRIES_OF_NAME = 10  # in a window, from one address
SLOWEST_SECONDS = 4.0
DEVICE_KNOWN = timedelta(days=180)
MADE = 20  # passwords for others, in a window
TRIES_OF_ADDRESS = 50
SEEN_EVERY = timedelta(minutes=1)
MADE_WITHIN = timedelta(minutes=10)
log = structlog.get_logger(__name__)


class NotSignedIn(Exception):
    """Name, password or code is not right; which of them is not said."""


class TooManyTries(Exception):
    """`seconds` until the next try is looked at."""

    def __init__(self, seconds: int):
        self.seconds = seconds
        super().__init__("too many tries")


class Visitor(NamedTuple):
    """Where a request comes from: the client's address, what its browser calls itself, and the tokens of those who
    have signed in there before."""

    address: str
    agent: str
    devices: tuple[str, ...] = ()


class IssuedPassword(NamedTuple):
    """A user with the password that is shown this once."""

    user_id: int
    name: str
    role: str
    password: str


class SignInResult(NamedTuple):
    """A session. `token` is for its browser alone; not `complete`: the one-time code is still awaited. `device` tells
    the browser of this user from others at the next sign-in."""

    token: str
    complete: bool
    user_id: int
    device: str = ""


# Signing in


async def sign_in(
    database: Database,
    hasher: Passwords,
    name: str,
    password: str,
    visitor: Visitor,
    now: datetime,
    keys: DataKeys | None = None,
) -> SignInResult:
    """A new session, whatever the browser had before. Unknown, disabled and wrong are one answer after one time.

    Tries are counted by name and address, and by address. Many tries of one name from many addresses make it slower for
    browsers nobody knows, and lock nobody out; a browser where this user has signed in before counts for itself.
    Raises NotSignedIn, TooManyTries, passwords.Busy."""
    async with database.connection() as connection:
        found = await rows.named(connection, name)
    of_name = _subject("name", (found.name if found else name).lower())  # the database knows more letters that are one
    device = _device(keys, found, visitor.devices, now) if keys and found else ""
    if device:
        own, shared = _subject("device", device), ()
    else:  # a new password begins a new count
        own = _subject("name and address", f"{of_name.hex()}|{found and found.password}|{_of_address(visitor.address)}")
        shared = (of_name, _of_address(visitor.address))
    most = {own: TRIES_OF_NAME, **dict.fromkeys(shared[1:], TRIES_OF_ADDRESS)}
    counted = await _count_all(database, (own, *shared), most, visitor.address, now)
    await asyncio.sleep(slow_down(counted.get(of_name, 0)))
    known = found if found is not None and _may_enter(found) else None
    try:
        fits = await hasher.fits(known.password if known else None, password)
    except Busy:
        async with database.connection() as connection:
            for subject in (own, *shared):  # a try that was not looked at was none
                await rows.take_back(connection, subject)
        raise
    if not fits or known is None:
        log.warning("console_sign_in_refused", address=visitor.address, user_id=found.user_id if found else None)
        raise NotSignedIn

    async def work(connection: Connection) -> SignInResult:
        if await rows.account(connection, known.user_id) != known:  # changed while it was looked at
            raise NotSignedIn
        await rows.sweep(connection, now - LONGEST, now - WINDOW, now)
        await rows.forgive(connection, own)
        if shared:
            await _forgive(connection, of_name, visitor.address)
        return await _enter(connection, known, not known.totp_on, visitor, now, keys)

    return await database.run(work)


def slow_down(tries: int) -> float:
    """The seconds a sign-in waits, by how often its name was tried in a quarter of an hour from everywhere."""
    over = tries - TRIES_OF_NAME
    return 0.0 if over <= 0 else min(0.25 * 2 ** min((over - 1) // 10, 10), SLOWEST_SECONDS)


async def enter_code(
    database: Database, keys: DataKeys, pending: Session, token: str, code: str, visitor: Visitor, now: datetime
) -> SignInResult:
    """The second step of signing in: a one-time code, which works once. Raises NotSignedIn, TooManyTries."""
    of_user = _subject("code", str(pending.user_id))
    await _count(database, of_user, visitor.address, now)

    async def work(connection: Connection) -> SignInResult:
        known = await rows.account(connection, pending.user_id)
        if known is None or not _may_enter(known) or not await _code_fits(connection, keys, known, code, now):
            raise NotSignedIn
        if not await rows.end_by_token(connection, token_hash(token)):  # ended by its owner meanwhile
            raise NotSignedIn
        await _forgive(connection, of_user, visitor.address)
        return await _enter(connection, known, True, visitor, now, keys)

    return await database.run(work)


async def session(database: Database, token: str, now: datetime, *, by_hand: bool) -> Session | None:
    """The session of a token, while it lasts. `by_hand`: somebody is there; a page that renews itself is nobody."""
    async with database.connection() as connection:
        found = await rows.session(connection, token_hash(token))
        if found is None or not _lasts(found, now):
            return None
        if by_hand and found.complete and now - found.seen_at > SEEN_EVERY:
            await rows.touch(connection, found.session_id, now)
        return found


async def reauthenticate(
    database: Database, hasher: Passwords, here: Session, password: str, visitor: Visitor, now: datetime
) -> None:
    """The password again, for what only its owner may see. Raises NotSignedIn, TooManyTries, passwords.Busy."""
    await _prove(database, hasher, here.user_id, password, visitor, now)
    async with database.connection() as connection:
        await rows.set_sure(connection, here.session_id, now)


async def sign_out(database: Database, token: str) -> None:
    async with database.connection() as connection:
        await rows.end_by_token(connection, token_hash(token))


async def set_flash(database: Database, session_id: int, said: str, failed: bool) -> None:
    """What the session's next page shows, once."""
    async with database.connection() as connection:
        await rows.say(connection, session_id, said, failed)


def token_hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


# One's own account


async def change_password(
    database: Database, hasher: Passwords, here: Session, old: str, new: str, visitor: Visitor, now: datetime
) -> None:
    """Ends all other sessions. Raises OperatorError, NotSignedIn, TooManyTries, passwords.Busy."""
    passwords.require_good(new, here.name)
    if new == old:
        raise OperatorError("the new password is the one you have now")
    await _prove(database, hasher, here.user_id, old, visitor, now)
    encoded = await hasher.hash(new)

    async def work(connection: Connection) -> None:
        await rows.set_password(connection, here.user_id, encoded, must_change=False)
        await rows.end_sessions(connection, here.user_id, but=here.session_id)
        await _record(connection, f"console:{here.name}", "user.password", here.tenant_id, {"user": here.name})

    await database.run(work)


async def begin_totp(database: Database, keys: DataKeys, here: Session) -> bytes:
    """The secret for an authenticator app; the one that was begun before, until a code of it was given. Raises
    OperatorError where it is on."""

    async def work(connection: Connection) -> bytes:
        known = await _account(connection, here.user_id)
        if known.totp_on:
            raise OperatorError("one-time codes are on")
        if known.sealed_totp is not None:
            return keys.open(known.sealed_totp, _context(here.user_id))
        secret = secrets.token_bytes(totp.SECRET_BYTES)
        await rows.set_totp(connection, here.user_id, keys.seal(secret, _context(here.user_id)), on=False)
        return secret

    return await database.run(work)


async def switch_totp_on(database: Database, keys: DataKeys, here: Session, code: str, now: datetime) -> None:
    """Once a code shows that the app has the secret; other sessions end. Raises OperatorError, TooManyTries."""
    of_user = _subject("code", str(here.user_id))
    await _count(database, of_user, None, now)

    async def work(connection: Connection) -> None:
        known = await _account(connection, here.user_id)
        if known.totp_on:
            raise OperatorError("one-time codes are on")
        await rows.set_totp(connection, here.user_id, known.sealed_totp, on=known.sealed_totp is not None)
        if not await _code_fits(connection, keys, known._replace(totp_on=True), code, now):
            raise OperatorError("this code is not right: take the newest one of your app, and see that its clock is")
        await rows.forgive(connection, of_user)
        await rows.end_sessions(connection, here.user_id, but=here.session_id)
        await _record(connection, f"console:{here.name}", "user.totp.on", here.tenant_id, {"user": here.name})

    await database.run(work)


async def switch_totp_off(database: Database, here: Session) -> None:
    """The caller has made sure who it is."""

    async def work(connection: Connection) -> None:
        await rows.set_totp(connection, here.user_id, None, on=False)
        await _record(connection, f"console:{here.name}", "user.totp.off", here.tenant_id, {"user": here.name})

    await database.run(work)


async def sessions(database: Database, user_id: int, now: datetime) -> tuple[Account, list[Place]]:
    """An account, and where it is signed in."""
    async with database.connection() as connection:
        return await _account(connection, user_id), await rows.places(connection, user_id, now - IDLE, now - LONGEST)


async def end_session(database: Database, here: Session, session_id: int) -> bool:
    """One of one's own."""

    async def work(connection: Connection) -> bool:
        ended = await rows.end_session(connection, here.user_id, session_id)
        if ended:
            detail = {"user": here.name, "session": session_id}
            await _record(connection, f"console:{here.name}", "user.session.end", here.tenant_id, detail)
        return ended

    return await database.run(work)


# Admins


class Issuer(NamedTuple):
    """Who makes a password for somebody at the console, and when: so often in a while, as each costs much to hash."""

    user_id: int
    at: datetime


async def create(
    database: Database,
    hasher: Passwords,
    tenant_id: int | None,
    name: str,
    role: str,
    author: str,
    password: str | None = None,
    maker: Issuer | None = None,
) -> IssuedPassword:
    """A new user of the operator, or of a dealer. Without a password one is made up, which must be changed at the first
    sign-in. Raises OperatorError, TooManyTries, passwords.Busy."""
    _require_role(tenant_id, role)
    if not name.isprintable():  # marks that nobody sees make two names look like one
        raise OperatorError("a name is written in letters, digits and signs that can be seen")
    if not 1 <= len(name) <= 100 or any(map(str.isspace, name)):
        raise OperatorError("a name has 1 to 100 characters and no spaces, such as an e-mail address")
    await _count_made(database, maker)
    must_change, password = password is None, password or passwords.made()
    encoded = await hasher.hash(password)

    async def work(connection: Connection) -> int:
        if tenant_id is not None and not await store.tenant.listed(connection, tenant_id):
            raise OperatorError(f"no tenant {tenant_id}")
        user_id = await rows.create(connection, tenant_id, name, role, encoded, must_change)
        if user_id is None:
            raise OperatorError(f"there is a user {name} already")
        await _record(connection, author, "user.create", tenant_id, {"user": name, "role": role})
        return user_id

    return IssuedPassword(await database.run(work), name, role, password)


async def reset(
    database: Database, hasher: Passwords, user_id: int, within: int | None, author: str, maker: Issuer | None = None
) -> IssuedPassword:
    """A new password, which must be changed, no one-time codes, and every session ends. `within`: the dealer it has to
    belong to, None for any. Raises OperatorError, TooManyTries, passwords.Busy."""
    if maker is not None and maker.user_id == user_id:  # nobody would be left to see it
        raise OperatorError("change your own password on the page Account")
    await _count_made(database, maker)
    password = passwords.made()
    encoded = await hasher.hash(password)

    async def work(connection: Connection) -> IssuedPassword:
        known = await _account(connection, user_id, within)
        await rows.set_password(connection, user_id, encoded, must_change=True)
        await rows.set_totp(connection, user_id, None, on=False)
        await rows.end_sessions(connection, user_id)
        await rows.forgive(connection, _subject("name", known.name.lower()))
        await _record(connection, author, "user.reset", known.tenant_id, {"user": known.name})
        return IssuedPassword(user_id, known.name, known.role, password)

    return await database.run(work)


async def keep_issued(database: Database, keys: DataKeys, here: Session, made: IssuedPassword, now: datetime) -> None:
    """A password that was just made stays, sealed, in its maker's session, which shows it once within ten minutes."""
    sealed = keys.seal(msgspec.json.encode(made), _made_context(here))
    async with database.connection() as connection:
        await rows.keep_made(connection, here.session_id, sealed, now + MADE_WITHIN)


async def take_issued(database: Database, keys: DataKeys, here: Session, now: datetime) -> IssuedPassword | None:
    """What was kept; from then on it is nowhere."""
    sealed, until = here.sealed_made, here.made_until
    if sealed is None or until is None or until < now:
        return None
    async with database.connection() as connection:
        taken = await rows.take_made(connection, here.session_id, sealed)
    return msgspec.json.decode(keys.open(sealed, _made_context(here)), type=IssuedPassword) if taken else None


async def change(database: Database, user_id: int, within: int | None, role: str, status: str, author: str) -> None:
    """Another role, or ACTIVE or DISABLED; every session of the user ends. One admin is always left. Raises
    OperatorError."""
    if status not in ("ACTIVE", "DISABLED"):
        raise OperatorError(f"{status!r}: ACTIVE or DISABLED")

    async def work(connection: Connection) -> None:
        tenant_id = (await _account(connection, user_id, within, lock=False)).tenant_id
        admins = await rows.lock_admins(connection, tenant_id)
        known = await _account(connection, user_id, within)
        _require_role(known.tenant_id, role)
        if admins == [user_id] and (role, status) != ("admin", "ACTIVE"):
            raise OperatorError(f"{known.name} is the last admin")
        before, after = {"role": known.role, "status": known.status}, {"role": role, "status": status}
        await rows.set_role(connection, user_id, role, status)
        await rows.end_sessions(connection, user_id)
        detail = {"user": known.name, "before": before, "after": after}
        await _record(connection, author, "user.set", known.tenant_id, detail)

    await database.run(work)


async def listed(database: Database, within: int | None = None) -> list[Listed]:
    async with database.connection() as connection:
        return await rows.listed(connection, within)


async def id_of(database: Database, name: str) -> int:
    """Raises OperatorError."""
    async with database.connection() as connection:
        found = await rows.named(connection, name)
    if found is None:
        raise OperatorError(f"no user {name}")
    return found.user_id


def _require_role(tenant_id: int | None, role: str) -> None:
    accepted = OPERATOR_ROLES if tenant_id is None else DEALER_ROLES
    if role not in accepted:
        raise OperatorError(f"role {role!r}: one of {', '.join(accepted)}")


async def _account(connection: Connection, user_id: int, within: int | None = None, *, lock: bool = True) -> Account:
    """Raises OperatorError."""
    found = await rows.account(connection, user_id, lock=lock)
    if found is None or within not in (None, found.tenant_id):
        raise OperatorError("there is no such user")
    return found


async def _prove(
    database: Database, hasher: Passwords, user_id: int, password: str, visitor: Visitor, now: datetime
) -> None:
    """Raises NotSignedIn, TooManyTries, passwords.Busy."""
    of_user = _subject("sure", str(user_id))
    await _count(database, of_user, visitor.address, now)
    async with database.connection() as connection:
        known = await rows.account(connection, user_id)
    if not await hasher.fits(known.password if known else None, password):
        raise NotSignedIn
    async with database.transaction() as connection:
        await _forgive(connection, of_user, visitor.address)


async def _enter(
    connection: Connection, known: Account, complete: bool, visitor: Visitor, now: datetime, keys: DataKeys | None
) -> SignInResult:
    token = secrets.token_urlsafe(32)
    await rows.open_session(
        connection, token_hash(token), known.user_id, complete, visitor.address, visitor.agent[:200], now
    )
    if complete:
        await _record(connection, f"console:{known.name}", "user.sign_in", known.tenant_id, {"user": known.name})
    device = _new_device(keys, known, now) if complete and keys else ""
    return SignInResult(token, complete, known.user_id, device)


def _new_device(keys: DataKeys, known: Account, now: datetime) -> str:
    """A token for a browser where this user has signed in. It opens nothing, and ends with the password."""
    said = f"{known.user_id}.{secrets.token_hex(8)}.{int(now.timestamp())}"
    return f"{said}.{_device_mark(keys, known, said)}"


def _device(keys: DataKeys, known: Account, tokens: Sequence[str], now: datetime) -> str:
    """What tells this user's browser from their others; "" where no token is one of theirs."""
    for token in tokens:
        said, _, mark = token.rpartition(".")
        user_id, _, rest = said.partition(".")
        if user_id != str(known.user_id) or not hmac.compare_digest(
            mark.encode(), _device_mark(keys, known, said).encode()
        ):
            continue
        issued = int(rest.partition(".")[2])  # ours, so it is a number
        if 0 <= now.timestamp() - issued < DEVICE_KNOWN.total_seconds():
            return said
    return ""


def _device_mark(keys: DataKeys, known: Account, said: str) -> str:
    return hmac.digest(keys.derive(b"console device"), f"{said}|{known.password}".encode(), "sha256").hex()


async def _code_fits(connection: Connection, keys: DataKeys, known: Account, code: str, now: datetime) -> bool:
    """Whether a code is right and was not used before; then it is used."""
    if not known.totp_on or known.sealed_totp is None:
        return False
    secret = keys.open(known.sealed_totp, _context(known.user_id))
    step = totp.step_matched(secret, "".join(code.split()), now)
    return step is not None and await rows.use_totp_step(connection, known.user_id, step)


async def _count_made(database: Database, maker: Issuer | None) -> None:
    """Raises TooManyTries."""
    if maker is not None:
        await _count(database, _subject("make", str(maker.user_id)), None, maker.at, MADE)


async def _count(
    database: Database, subject: bytes, address: str | None, now: datetime, tries: int = TRIES_OF_NAME
) -> None:
    """Raises TooManyTries."""
    most = {subject: tries} | ({} if address is None else {_of_address(address): TRIES_OF_ADDRESS})
    await _count_all(database, list(most), most, address, now)


async def _count_all(
    database: Database, subjects: Sequence[bytes], most: Mapping[bytes, int], address: str | None, now: datetime
) -> dict[bytes, int]:
    """Counts one try of each; how many there were. Raises TooManyTries where one has been tried more than it may."""
    async with database.connection() as connection:
        counted = await rows.count_tries(connection, subjects, WINDOW, now)
    until = [since + WINDOW for one, (tries, since) in counted.items() if one in most and tries > most[one]]
    if until:
        log.warning("console_tries_throttled", address=address)
        raise TooManyTries(max(1, round((max(until) - now).total_seconds())))
    return {one: tries for one, (tries, _) in counted.items()}


async def _forgive(connection: Connection, of_name: bytes, address: str) -> None:
    await rows.forgive(connection, of_name)
    await rows.take_back(connection, _of_address(address))


def _of_address(address: str) -> bytes:
    """An IPv6 network of 64 bits is one customer's."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return _subject("address", address)
    wide = ipaddress.ip_network(f"{address}/64", strict=False) if parsed.version == 6 else parsed
    return _subject("address", str(wide))


def _subject(kind: str, text: str) -> bytes:
    return hashlib.sha256(f"{kind}|{text}".encode()).digest()


def _may_enter(known: Account) -> bool:
    return known.status == "ACTIVE" and not known.dealer_disabled


def _lasts(found: Session, now: datetime) -> bool:
    if not found.complete:
        return now - found.created_at < CODE_WITHIN
    return now - found.seen_at < IDLE and now - found.created_at < LONGEST


def _made_context(here: Session) -> bytes:
    return f"made|{here.session_id}".encode()


def _context(user_id: int) -> bytes:
    return f"totp|{user_id}".encode()


async def _record(
    connection: Connection, author: str, action: str, tenant_id: int | None, detail: Mapping[str, object]
) -> None:
    await store.audit_log.record_act(connection, author, action, tenant_id, detail)
