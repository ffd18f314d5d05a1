"""Recharges that one statement finds and writes (docs/decisions/0030-recharges.md, 7)."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from dealer_server import store
from dealer_server.db.session import Session
from dealer_server.dev import catalogue as generate
from dealer_server.operations.recharges.known_fits import MOST_BASES, KnownFits
from dealer_server.rules.catalogue.package import Package
from dealer_server.rules.orders.order import NextPlan, OrderRequest, Placed
from dealer_server.rules.orders.priced_lines import OrderLine
from dealer_server.rules.recharges import recharge as rules
from dealer_server.rules.recharges.recharge import Fit, Target, Wanted
from dealer_server.store.recharges import recharge as recharges
from support.api_client import ApiClient, Service
from support.money.recharges import balance, plans, recharge, recharged
from support.money.refunds import bought, profiles

NOW = datetime(2026, 11, 20, 8, 15, 30, tzinfo=UTC)
FIT = Fit("simulated", "TEST-DELAY,TEST-OK")
LINE = OrderLine("TEST-TOPUP-OK", 1, 1, 12_000, "simulated")
VOID = """
INSERT INTO void_request (tenant_id, profile_id, order_id, line, supplier, package_code, iccid, created_at, due_at,
    outcome)
SELECT tenant_id, profile_id, order_id, line, 'simulated', 'TEST-OK', iccid, now(), {due}, {outcome} FROM profile
WHERE profile_id = {esim}"""
STATES = {
    "as it was sold": "SELECT",
    "without an ICCID": "UPDATE profile SET iccid = NULL, activation_code = NULL, lifecycle_status = 'PENDING'"
    " WHERE profile_id = {esim}",
    "cancelled": "UPDATE profile SET cancelled = true WHERE profile_id = {esim}",
    "refunded": "UPDATE profile SET refunded = true WHERE profile_id = {esim}",
    "held": "UPDATE profile SET held = true WHERE profile_id = {esim}",
    "its cancellation waits": VOID.replace("{due}", "now()").replace("{outcome}", "NULL"),
    "its cancellation was refused": VOID.replace("{due}", "NULL").replace("{outcome}", "'REFUSED'"),
    "expired": "UPDATE profile SET plan_use_status = 'ENDED', esim_status = 'UNUSED_EXPIRED' WHERE profile_id = {esim}",
    "ended": "UPDATE profile SET plan_use_status = 'ENDED', esim_status = NULL WHERE profile_id = {esim}",
    "used up": "UPDATE profile SET plan_use_status = 'ENDED', esim_status = 'USED_UP' WHERE profile_id = {esim}",
    "99 plans": "UPDATE profile SET plan_no = 99 WHERE recharges = {esim}",
    "100 plans": "UPDATE profile SET plan_no = 100 WHERE recharges = {esim}",
}
REFUSED = {
    "without an ICCID",
    "cancelled",
    "refunded",
    "held",
    "its cancellation waits",
    "expired",
    "ended",
    "100 plans",
}


class _RolledBack(Exception):
    pass


@pytest.fixture
async def session(service: Service):
    session = service.database.session()
    yield session
    await session.close()


@pytest.fixture
async def esim(dealer: ApiClient) -> tuple[int, int]:
    """(tenant_id, profile_id) of one with two plans."""
    order = await bought(dealer)
    await recharged(dealer, order)
    return dealer.tenant_id, int(profiles(order)[0]["profileId"])


async def found(session: Session, esim: tuple[int, int], fit: Fit = FIT, line: OrderLine = LINE) -> NextPlan | None:
    tenant_id, profile_id = esim
    request = OrderRequest(tenant_id, "one", b"1", "USD", line.price, (line,), recharge=NextPlan(profile_id))
    placed = [Placed(request, 7, 7, NOW)]
    [elsewhere] = await store.order.next_plans(session, placed, [fit])  # as where tables are distributed by tenant
    written, [plan] = await store.order.write_recharges(session, placed, [fit])
    assert written.done == (plan is not None)
    assert (elsewhere and (elsewhere.plan_no, elsewhere.iccid)) == (plan and (plan.plan_no, plan.iccid))
    return plan


@pytest.mark.parametrize("state", STATES)
async def test_the_statement_refuses_the_states_that_the_rules_refuse(
    session: Session, esim: tuple[int, int], state: str
):
    with pytest.raises(_RolledBack):
        async with session.transaction():
            order_id = (await recharges.targets(session, [esim]))[esim].order_id
            await store.order.lock(session, [(esim[0], order_id)])  # the worker may look at it
            await session.execute(STATES[state].format(esim=esim[1]))
            target = (await recharges.targets(session, [esim]))[esim]
            refused = rules.refuse_state(target)
            plan = await found(session, esim)
            raise _RolledBack
    assert (plan is None) == (refused is not None) == (state in REFUSED)
    if plan is not None:
        assert (plan.plan_no, plan.iccid) == (target.plans + 1, target.iccid)


@pytest.mark.parametrize(
    ("fit", "line"),
    [
        (Fit("simulated", "TEST-DELAY"), LINE),
        (Fit("rt_upstream", "TEST-OK"), LINE),
        (FIT, msgspec.structs.replace(LINE, supplier="elsewhere")),
    ],
    ids=["of another package", "of a supplier of another kind", "of another supplier"],
)
async def test_the_statement_leaves_an_esim_that_does_not_fit(
    session: Session, esim: tuple[int, int], fit: Fit, line: OrderLine
):
    assert await found(session, esim, fit, line) is None
    assert await found(session, (esim[0] + 1, esim[1])) is None


@pytest.mark.usefixtures("exact")
async def test_one_that_is_refused_keeps_no_other_from_being_placed(dealer: ApiClient):
    orders = [await bought(dealer) for _ in range(12)]
    await recharged(dealer, orders[0])  # from here on the package is known
    for order in orders[2:4]:
        await dealer.post("/esim/profile/cancel", {"iccid": profiles(order)[0]["iccid"]})
    before = float(await balance(dealer))
    calls: list[tuple[str, dict[str, Any]]] = [
        ("000000", {}),  # of an eSIM that is recharged twice at once
        *[("000000", {"iccid": profiles(order)[0]["iccid"]}) for order in orders[:2]],
        *[("200002", {"iccid": profiles(order)[0]["iccid"]}) for order in orders[2:4]],
        *[("000000", {"iccid": None, "profileId": int(profiles(order)[0]["profileId"])}) for order in orders[4:]],
        ("310404", {"iccid": "8900000000000000009"}),
        ("310404", {"iccid": None, "profileId": 7}),
        ("200005", {"price": "9.99"}),
    ]
    replies = await asyncio.gather(*[recharge(dealer, orders[0], **call) for _, call in calls])
    assert [reply.code for reply in replies] == [code for code, _ in calls]
    placed = [reply.data for reply in replies if reply.code == "000000"]
    assert before - float(await balance(dealer)) == pytest.approx(1.20 * len(placed))
    for order in placed:
        await dealer.delivered(order["orderNo"])
    assert [plan["planNo"] for plan in await plans(dealer, orders[0])] == [1, 2, 3, 4]
    assert sorted(order["items"][0]["topUp"]["planNo"] for order in placed) == [2] * 9 + [3, 4]


CATALOGUE = {one.package_code: one for one in generate.catalogue("test")}


def wanted(base: Package | None = CATALOGUE["TEST-OK"], period_num: int | None = None) -> Wanted:
    return Wanted(7, None, CATALOGUE["TEST-TOPUP-OK"], period_num, lambda _: base, None)


def target(base: str = "TEST-OK", kind: str = "simulated") -> Target:
    return Target(1, 1, 1, base, "simulated", kind, "89", False, False, False, False, False, 1, 1)


def test_what_fitted_once_is_known_as_long_as_the_catalogue_says_so():
    known = KnownFits()
    assert known.find([(wanted(), LINE)]) == [None]
    known.add(LINE, target())
    known.add(LINE, target())
    other = msgspec.structs.replace(LINE, supplier="other")
    unfit = msgspec.structs.replace(CATALOGUE["TEST-OK"], top_up_support=False)
    asked = [(wanted(), LINE), (wanted(), LINE), (wanted(), other), (wanted(period_num=3), LINE)]
    assert known.find(asked) == [Fit("simulated", "TEST-OK")] * 2 + [None, None]
    assert known.find([(wanted(unfit), LINE)]) == known.find([(wanted(None), LINE)]) == [None]
    known.add(LINE, target(kind="stock"))  # the supplier is of another kind now, which does not recharge
    assert known.find([(wanted(), LINE)]) == [None]


def test_the_last_packages_are_known():
    known = KnownFits()
    for number in range(MOST_BASES + 2):
        known.add(LINE, target(f"BASE-{number}"))
    [fit] = known.find([(wanted(), LINE)])
    assert fit and fit.bases.split(",") == [f"BASE-{number}" for number in range(2, MOST_BASES + 2)]
