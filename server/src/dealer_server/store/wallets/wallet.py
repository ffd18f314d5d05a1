"""The BALANCE wallets and their ledger."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.db.rows import as_value, as_values, columns_of
from dealer_server.db.session import Session
from dealer_server.rules.money.wallet import Wallet

MOST = 2**63 - 1


class NotCovered(Exception):
    """Balance and credit limit do not cover the amount, or the new balance is too large to store; nothing was moved."""


class Account(NamedTuple):
    """A wallet as /account/balance shows it, with the number of orders and profiles its tenant has bought."""

    tenant_id: int
    currency: str
    balance: int
    credit_limit: int
    low_balance_threshold: int
    order_count: int
    profile_count: int
    updated_at: datetime


async def lock(session: Session | Connection, tenant_ids: Sequence[int], *, wait: bool = True) -> dict[int, Wallet]:
    """Locks wallets, in the order of their tenants, until the transaction ends; without `wait` only those that no other
    transaction holds."""
    rows = await session.fetch(
        f"SELECT {columns_of(Wallet)} FROM wallet WHERE tenant_id = ANY($1::bigint[]) ORDER BY tenant_id"
        " FOR NO KEY UPDATE" + ("" if wait else " SKIP LOCKED"),
        tenant_ids,
    )
    return {wallet.tenant_id: wallet for wallet in as_values(Wallet, rows)}


async def load(connection: Connection, tenant_id: int) -> Wallet:
    rows = await connection.fetch(f"SELECT {columns_of(Wallet)} FROM wallet WHERE tenant_id = $1", tenant_id)
    return as_value(Wallet, rows[0])


async def accounts(session: Session, tenant_ids: Sequence[int]) -> dict[int, Account]:
    rows = await session.fetch(
        f"SELECT {columns_of(Account)} FROM wallet WHERE tenant_id = ANY($1::bigint[])", tenant_ids
    )
    return {account.tenant_id: account for account in as_values(Account, rows)}


async def create(connection: Connection, tenant_id: int, currency: str, credit_limit: int) -> None:
    await connection.execute(
        "INSERT INTO wallet (tenant_id, currency, credit_limit) VALUES ($1, $2, $3)", tenant_id, currency, credit_limit
    )


async def move(
    connection: Connection, tenant_id: int, entry_type: str, amount: int, reference: int | None, now: datetime
) -> int:
    """Changes the balance and writes the ledger entry; returns the entry's version. `reference` None: the version
    itself becomes the reference.

    Raises NotCovered, and asyncpg.UniqueViolationError where this entry_type and reference moved money before.
    """
    version: int | None = await connection.fetchval(
        "WITH moved AS ("
        " UPDATE wallet SET balance = balance + $3, version = version + 1, updated_at = $5 WHERE tenant_id = $1"
        f" AND balance::numeric + $3 BETWEEN -credit_limit AND {MOST} RETURNING version, balance)"
        "INSERT INTO ledger_entry (tenant_id, version, entry_type, reference, amount, balance_after, created_at)"
        " SELECT $1, version, $2, coalesce($4, version), $3, balance, $5 FROM moved RETURNING version",
        tenant_id,
        entry_type,
        amount,
        reference,
        now,
    )
    if version is None:
        raise NotCovered
    return version


async def set_terms(
    connection: Connection,
    tenant_id: int,
    *,
    credit_limit: int | None,
    low_balance_threshold: int | None,
    frozen: bool | None,
) -> None:
    """Raises asyncpg.CheckViolationError where the balance is already below the new credit limit."""
    await connection.execute(
        "UPDATE wallet SET credit_limit = coalesce($2, credit_limit), frozen = coalesce($3, frozen),"
        " low_balance_threshold = coalesce($4, low_balance_threshold) WHERE tenant_id = $1",
        tenant_id,
        credit_limit,
        frozen,
        low_balance_threshold,
    )
