"""`dealer-server tenant`: dealers and their terms."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from dealer_server.cli.arguments import prices
from dealer_server.cli.catalog import BelowCost
from dealer_server.cli.command import AsJson, Context
from dealer_server.cli.output import for_programs, print_json, print_result, print_table

if TYPE_CHECKING:
    from dealer_server.store.tenants.tenant import Tenant

app = App(name="tenant", help="Dealers.")


@app.command(name="create")
async def create_tenant(
    *,
    name: str,
    currency: str = "USD",
    balance: str | None = None,
    qps: int | None = None,
    credit_limit: str | None = None,
    low_balance: str | None = None,
    ip_allow: list[str] | None = None,
    markup: str | None = None,
    price: list[str] | None = None,
    allow_below_cost: BelowCost = False,
    as_json: AsJson = False,
    context: Context,
) -> None:
    """Create a dealer; its AppSecret is shown only once.

    Args:
        balance: Opening balance, an ADJUST entry.
        qps: Calls a second; 0 is no limit.
        low_balance: /account/balance reports lowBalance below this available balance; 0 is never.
        ip_allow: Addresses or networks that may call; repeat for several.
        markup: Percent on the default dealer price, such as 12.5.
        price: PACKAGE=PRICE, or PACKAGE=off; repeat for several.
    """
    from dealer_server.operations.tenants.create import create_tenant
    from dealer_server.operations.tenants.set_terms import Terms

    terms = Terms(
        name=name, balance=balance, credit_limit=credit_limit, low_balance=low_balance,
        qps=qps, ip_allow=ip_allow, markup=markup, prices=prices(price),
    )  # fmt: skip
    opened = context.settings
    await context.data_keys()  # sealing keys of another database must not seal this dealer's secret
    created = await create_tenant(
        context.database,
        opened.master_keys,
        opened.environment,
        currency,
        terms,
        context.author,
        context.clock,
        allow_below_cost=allow_below_cost,
    )
    if as_json:
        print_json(created)
    else:
        print(f"tenant     {created.tenant_id}  {created.name}  ({created.environment}, {created.currency})")
        print(f"AppKey     {created.app_key}\nAppSecret  {created.app_secret}   shown only once")


@app.command(name="list")
async def list_tenants(*, as_json: AsJson = False, context: Context) -> None:
    """List the dealers."""
    from dealer_server.operations.tenants.list import list_tenants

    tenants = await list_tenants(context.database)
    if as_json:
        for dealer in tenants:
            print_json(_fields(dealer))
    else:
        heads = ("tenant", "name", "status", "balance", "credit limit", "low at", "QPS", "AppKey")
        print_table(heads, map(_row, tenants))


@app.command(name="isolate")
async def isolate_tenant(tenant_id: int, *, context: Context) -> None:
    """Give a large dealer of a distributed database a shard of its own, which can be moved to another node."""
    from dealer_server.operations.errors import OperatorError
    from dealer_server.store.distribution import nodes

    if not context.database.distributed:
        raise OperatorError("this database is not distributed: dealer-server distribute")
    async with context.database.connection() as connection:
        place = await nodes.place_of(connection, tenant_id)
        if place is None:
            raise OperatorError(f"there is no dealer {tenant_id}")
        if not place.alone:
            await nodes.isolate(connection, tenant_id)
            place = await nodes.place_of(connection, tenant_id)
            assert place is not None
    print(f"tenant {tenant_id} has shard {place.shard_id} of its own, at {place.node}")


@app.command(name="set")
async def set_tenant(
    tenant_id: int,
    *,
    name: str | None = None,
    balance: str | None = None,
    qps: int | None = None,
    credit_limit: str | None = None,
    low_balance: str | None = None,
    ip_allow: list[str] | None = None,
    any_ip: Annotated[bool, Parameter(negative="")] = False,
    markup: str | None = None,
    price: list[str] | None = None,
    allow_below_cost: BelowCost = False,
    status: str | None = None,
    freeze: Annotated[bool | None, Parameter(negative="--unfreeze")] = None,
    edits_ip_allow: bool | None = None,
    manages_keys: bool | None = None,
    rt_face: str | None = None,
    as_json: AsJson = False,
    context: Context,
) -> None:
    """Change a dealer's terms; options that are left out change nothing.

    Args:
        balance: Brings the balance to this amount by one ADJUST entry.
        low_balance: /account/balance reports lowBalance below this available balance; 0 is never.
        any_ip: Empties the address allowlist.
        price: PACKAGE=PRICE, PACKAGE=off, or PACKAGE=list to return to the price list; repeat for several.
        status: ACTIVE or DISABLED.
        freeze: A frozen wallet buys nothing.
        edits_ip_allow: Whether the dealer may edit its address allowlist in the console.
        manages_keys: Whether the dealer may create, limit and revoke its AppKeys in the console.
        rt_face: How clients of the RT family may call: off, signed, or access-code (AppKey and allowlist alone).
    """
    from dealer_server.operations.tenants.set_terms import Terms, set_tenant

    terms = Terms(
        name=name, balance=balance, qps=qps, credit_limit=credit_limit, low_balance=low_balance, markup=markup,
        ip_allow=[] if any_ip else ip_allow, prices=prices(price), status=status, frozen=freeze,
        edits_ip_allow=edits_ip_allow, manages_keys=manages_keys, rt_face=rt_face,
    )  # fmt: skip
    await set_tenant(
        context.database, tenant_id, terms, context.author, context.clock, allow_below_cost=allow_below_cost
    )
    print_result(as_json, {"tenantId": str(tenant_id)}, f"tenant {tenant_id} is changed")


@app.command(name="brand")
async def set_brand(
    tenant_id: int,
    *,
    name: str | None = None,
    colour: str | None = None,
    logo: Path | None = None,
    no_logo: Annotated[bool, Parameter(negative="")] = False,
    support_email: str | None = None,
    support_phone: str | None = None,
    support_url: str | None = None,
    sales_url: str | None = None,
    as_json: AsJson = False,
    context: Context,
) -> None:
    """Change what a dealer's install pages show of it; options that are left out change nothing, "" removes.

    Args:
        colour: Of the button and the symbols, such as #1d5fd1.
        logo: A PNG, WebP or SVG file of at most 32 KB.
        no_logo: Removes the logo.
        support_url: An https address of a help page or a chat.
        sales_url: An https address of the shop; install pages lead there for more data.
    """
    from dealer_server.operations.tenants import brand

    change = brand.BrandChange(
        name=name,
        colour=colour,
        support_email=support_email,
        support_phone=support_phone,
        support_url=support_url,
        sales_url=sales_url,
        logo=logo and logo.read_bytes(),
        no_logo=no_logo,
    )
    await brand.set_brand(context.database, tenant_id, change, context.author)
    print_result(as_json, {"tenantId": str(tenant_id)}, f"the brand of tenant {tenant_id} is changed")


@app.command(name="adjust")
async def adjust_balance(
    tenant_id: int, amount: str, *, reason: str, as_json: AsJson = False, context: Context
) -> None:
    """Add money to a dealer's wallet, or take it away where the amount begins with -: one ADJUST entry.

    Args:
        reason: Why, for the audit log.
    """
    from dealer_server.operations.wallets.adjust import adjust_balance

    dealer = await adjust_balance(context.database, tenant_id, amount, reason, context.author, context.clock)
    print_result(as_json, _fields(dealer), f"tenant {tenant_id} now has {_amount(dealer, dealer.balance)}")


def _fields(dealer: "Tenant") -> dict[str, object]:
    """A dealer with names and amounts as on the wire."""
    from dealer_server.rules.money import money

    fields = dealer._asdict() | {
        "balance": money.text(dealer.balance, dealer.currency),
        "credit_limit": money.text(dealer.credit_limit, dealer.currency),
        "low_balance_threshold": money.text(dealer.low_balance_threshold, dealer.currency),
    }
    return for_programs(fields)


def _row(dealer: "Tenant") -> tuple[str, ...]:
    return (
        str(dealer.tenant_id),
        dealer.name,
        "FROZEN" if dealer.frozen else dealer.status,
        _amount(dealer, dealer.balance),
        _amount(dealer, dealer.credit_limit),
        _amount(dealer, dealer.low_balance_threshold),
        str(dealer.qps),
        dealer.app_key,
    )


def _amount(dealer: "Tenant", value: int) -> str:
    from dealer_server.rules.money import money

    return f"{money.text(value, dealer.currency)} {dealer.currency}"
