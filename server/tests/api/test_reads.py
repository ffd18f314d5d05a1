"""Operations that only read, and the pages served beside the operations (specification 2, 4 and 10)."""

import asyncio
import itertools
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest

from dealer_server import clock
from dealer_server.dev import catalogue as generate
from dealer_server.operations.catalogue.import_packages import put_packages
from dealer_server.rules.catalogue.countries import COUNTRIES
from dealer_server.rules.catalogue.package import Package
from dealer_server.rules.esim import qr
from dealer_server.rules.money import money
from support.api_client import ApiClient, Reply, Service, running_service
from support.patience import PATIENCE

TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z").fullmatch
PACKAGES = {package.package_code: package for package in generate.catalogue("test")}
TEST_OK = PACKAGES["TEST-OK"]
IN_EURO = msgspec.structs.replace(TEST_OK, package_code="IN-EURO", slug="in-euro", currency="EUR")
LINE = {"packageCode": "TEST-OK", "quantity": 1, "price": "1.80"}
Json = Mapping[str, Any]


@pytest.fixture(scope="module")
async def service(database_url: str) -> AsyncIterator[Service]:
    """The API alone: orders wait until a test needs `worked`."""
    async with running_service(database_url, worker=False) as service:
        await put_packages(service.database, [IN_EURO], "test", clock.now)
        yield service


@pytest.fixture(scope="module")
async def worked(service: Service, database_url: str) -> AsyncIterator[Service]:
    """Another process on the same database, with a worker that delivers."""
    async with running_service(database_url) as worked:
        yield worked


@pytest.fixture(scope="module")
async def reader(service: Service) -> AsyncIterator[ApiClient]:
    """A dealer with no prices of its own, which buys nothing."""
    async with service.client(await service.tenant(qps=0, name="Reader & Söhne <GmbH>")) as client:
        yield client


async def eventually(ask: Callable[[], Any], is_so: Callable[[Any], bool]) -> Any:
    """Asks again until it is so."""
    async with asyncio.timeout(PATIENCE):
        while not is_so(answer := await ask()):
            await asyncio.sleep(0.01)
    return answer


def refused(reply: Reply, status: int, code: str, named: str) -> None:
    assert (reply.status, reply.code) == (status, code) and named in reply.message, reply


# /health


async def test_health_names_the_tenant(reader: ApiClient):
    health = await reader.post("/health")
    assert (health.status, health.code, health.message) == (200, "000000", "success")
    assert health.data == {"status": "UP", "tenantId": str(reader.tenant_id), "clientName": "Reader & Söhne <GmbH>"}


async def test_unknown_parameters_are_ignored(reader: ApiClient):
    assert (await reader.post("/health", {"shopId": 7, "tenantId": "1"})).data["tenantId"] == str(reader.tenant_id)


# /account/balance


@pytest.mark.parametrize(
    ("currency", "balance", "credit_limit", "threshold", "answered", "available", "low"),
    [
        ("USD", "1000", "0", 0, "1000.00", "1000.00", False),
        ("USD", "0", "0", 0, "0.00", "0.00", False),
        ("USD", "10.00", "0", 10_0000, "10.00", "10.00", False),
        ("USD", "9.99", "0", 10_0000, "9.99", "9.99", True),
        ("USD", "9.99", "0.01", 10_0000, "9.99", "10.00", False),
        ("USD", "-4.99", "5", 100, "-4.99", "0.01", False),
        ("USD", "-5", "5", 100, "-5.00", "0.00", True),
        ("JPY", "123456", "1", 0, "123456", "123457", False),
        ("KWD", "1.234", "0", 1_2350, "1.234", "1.234", True),
        ("USD", "99999999999", "0", 0, "99999999999.00", "99999999999.00", False),
    ],
)
async def test_the_balance_is_shown_with_the_available_balance_and_the_low_balance_flag(
    service: Service,
    currency: str,
    balance: str,
    credit_limit: str,
    threshold: int,
    answered: str,
    available: str,
    low: bool,
):
    created = await service.tenant(currency, balance=balance, credit_limit=credit_limit, qps=0)
    async with service.client(created) as client:
        async with service.database.connection() as connection:
            sql = "UPDATE wallet SET low_balance_threshold = $2 WHERE tenant_id = $1"
            await connection.execute(sql, client.tenant_id, threshold)
        data = (await client.post("/account/balance")).data
    assert TIME(data.pop("updateTime"))
    assert data == {
        "accountType": "BALANCE",
        "currency": currency,
        "balance": answered,
        "creditLimit": money.text(money.parse(credit_limit, currency), currency),
        "availableBalance": available,
        "lowBalanceThreshold": money.text(threshold, currency),
        "lowBalance": low,
    }


async def test_an_order_moves_the_balance_and_its_time(service: Service):
    async with service.client(await service.tenant(balance="1.00", credit_limit="1", qps=0)) as client:
        before = (await client.post("/account/balance")).data
        await client.order()
        after = (await client.post("/account/balance")).data
    assert (after["balance"], after["availableBalance"]) == ("-0.80", "0.20")
    assert after["updateTime"] >= before["updateTime"]


# /package/list


async def listed(client: ApiClient, **filters: Any) -> list[dict[str, Any]]:
    """All the packages a filter gives, in the order of their pages."""
    found, page_num = [], 1
    while True:
        data = (await client.post("/package/list", filters | {"pager": {"pageNum": page_num, "pageSize": 500}})).data
        found += data["packages"]
        if "next" not in data["pager"]:
            assert len(found) == data["pager"]["total"]
            return found
        page_num += 1


def codes(packages: list[dict[str, Any]]) -> list[str]:
    return [package["packageCode"] for package in packages]


async def test_the_whole_catalogue_in_the_wallets_currency_is_on_sale_at_the_default_price(reader: ApiClient):
    found = {package["packageCode"]: package for package in await listed(reader)}
    assert found.keys() == PACKAGES.keys()
    for code, package in PACKAGES.items():
        assert found[code]["price"] == money.text(package.price, "USD")
        assert (found[code]["currency"], found[code]["status"]) == ("USD", "ON_SALE")
    test_ok = found["TEST-OK"]
    assert TIME(test_ok.pop("updateTime"))
    assert test_ok == {
        "packageCode": "TEST-OK",
        "slug": "test-ok",
        "packageName": "TEST-OK 1 GB 7 days",
        "description": "Test: delivered at once.",
        "type": "BASE",
        "status": "ON_SALE",
        "locationType": "COUNTRY",
        "locationCode": "US",
        "locations": ["US"],
        "price": "1.80",
        "retailPrice": "2.79",
        "currency": "USD",
        "dataType": "TOTAL",
        "dataBytes": 1_073_741_824,
        "duration": 7,
        "durationUnit": "DAY",
        "minPeriodNum": 1,
        "maxPeriodNum": 1,
        "unusedValidDays": 180,
        "activationType": TEST_OK.activation_type,
        "speed": "5G",
        "ipExport": "US",
        "topUpSupport": True,
        "supportTopUpType": 2,
        "topUpMode": "ADD",
        "maxQuantity": 100,
        "networks": [
            {
                "locationCode": network.location_code,
                "operators": [
                    {"operatorName": operator.operator_name, "networkType": operator.network_type}
                    for operator in network.operators
                ],
            }
            for network in TEST_OK.networks
        ],
        "supportedFields": list(TEST_OK.supported_fields),
    }
    unlimited = next(package for package in found.values() if package["dataType"] == "DAILY_UNLIMITED")
    assert unlimited["dataBytes"] is None and unlimited["fupSpeed"] == "1 Mbps"


def named_in(package: Package, keyword: str) -> bool:
    countries = " ".join(COUNTRIES[code].name for code in package.locations)
    words = (package.package_code, package.package_name, package.slug, package.location_name, countries)
    return keyword.strip().casefold() in " ".join(words).casefold()


PACKAGE_FILTERS: list[tuple[str, Any, Callable[[Package], bool]]] = [
    # field, value, which packages it means
    ("type", "BASE", lambda p: p.type == "BASE"),
    ("type", "TOPUP", lambda p: p.type == "TOPUP"),
    ("type", "", lambda p: True),
    ("type", None, lambda p: True),
    ("locationCode", "FR", lambda p: p.location_code == "FR" or "FR" in p.locations),
    ("locationCode", "EU-27", lambda p: p.location_code == "EU-27"),
    ("locationCode", "fr", lambda p: False),
    ("locationCode", "", lambda p: True),
    ("packageCode", "TEST-OK", lambda p: p.package_code == "TEST-OK"),
    ("packageCode", "test-ok", lambda p: False),
    ("packageCode", "NO-SUCH", lambda p: False),
    ("packageCode", "", lambda p: True),
    ("dataType", "TOTAL", lambda p: p.data_type == "TOTAL"),
    ("dataType", "DAILY_REDUCED", lambda p: p.data_type == "DAILY_REDUCED"),
    ("dataType", "DAILY_CUTOFF", lambda p: p.data_type == "DAILY_CUTOFF"),
    ("dataType", "DAILY_UNLIMITED", lambda p: p.data_type == "DAILY_UNLIMITED"),
    ("dataType", "", lambda p: True),
    *(
        ("keyword", keyword, lambda p, keyword=keyword: named_in(p, keyword))
        for keyword in (
            *("france", "FRANCE", " France ", "1 GB", "test-", "European Union", "no such place", "", "   "),
            *("Türkiye", "TÜRKIYE", "Réunion", "RÉUNION", "Côte d'Ivoire", "Åland", "curaçao", "são tomé", "日本"),
        )
    ),
    ("updatedSince", "2000-01-01T00:00:00Z", lambda p: True),
    ("updatedSince", "2000-01-01T00:00:00+05:30", lambda p: True),
    ("updatedSince", "9000-01-01T00:00:00Z", lambda p: False),
    ("updatedSince", "", lambda p: True),
    ("catalogVersion", "", lambda p: True),
    ("catalogVersion", "another", lambda p: True),
    ("pager", None, lambda p: True),
]


@pytest.mark.parametrize(("field", "value", "means"), PACKAGE_FILTERS)
async def test_each_filter_of_packages(reader: ApiClient, field: str, value: Any, means: Callable[[Package], bool]):
    assert set(codes(await listed(reader, **{field: value}))) == {
        c for c, package in PACKAGES.items() if means(package)
    }


def test_the_keywords_above_are_in_the_catalogue():
    for keyword in ("Türkiye", "Réunion", "Côte d'Ivoire", "Åland", "curaçao", "são tomé", "European Union"):
        assert any(named_in(package, keyword) for package in PACKAGES.values()), keyword


async def test_all_filters_of_packages_must_match(reader: ApiClient):
    pairs = [pair for pair in itertools.combinations(PACKAGE_FILTERS, 2) if pair[0][0] != pair[1][0]]
    for one, other in pairs[::3]:
        body = {one[0]: one[1], other[0]: other[1]}
        data = (await reader.post("/package/list", {"pager": {"pageSize": 1}} | body)).data
        expected = sum(one[2](package) and other[2](package) for package in PACKAGES.values())
        assert data["pager"]["total"] == expected, (one, other)


WRONG_PACKAGE_LISTS = [
    ({"type": "base"}, "000108", "type"),
    ({"type": 1}, "000108", "type"),
    ({"dataType": "DAILY"}, "000108", "dataType"),
    ({"updatedSince": "2026-11-20"}, "000108", "updatedSince"),
    ({"updatedSince": "2026-11-20T08:15:30"}, "000108", "updatedSince"),
    ({"updatedSince": 1767225600000}, "000108", "updatedSince"),
    ({"locationCode": ["FR"]}, "000108", "locationCode"),
    ({"keyword": 7}, "000108", "keyword"),
    ({"keyword": "é" * 101}, "000107", "keyword"),
    ({"packageCode": "x" * 65}, "000107", "packageCode"),
    ({"catalogVersion": 2}, "000108", "catalogVersion"),
    ({"pager": {"after": "nonsense"}}, "000108", "pager.after"),
    ({"pager": {"after": "1"}}, "000108", "pager.after"),
    ({"pager": {"after": "１:TEST-OK"}}, "000108", "pager.after"),
    ({"pager": {"after": "-1:TEST-OK"}}, "000108", "pager.after"),
    ({"pager": {"after": "9" * 30 + ":TEST-OK"}}, "000108", "pager.after"),
]


@pytest.mark.parametrize(("body", "code", "named"), WRONG_PACKAGE_LISTS)
async def test_a_wrong_filter_of_packages_is_named_in_the_refusal(reader: ApiClient, body: Json, code: str, named: str):
    refused(await reader.post("/package/list", body), 400, code, named)


PAGED = ["/package/list", "/esim/order/list", "/esim/profile/list"]


@pytest.mark.parametrize("path", PAGED)
@pytest.mark.parametrize(
    ("pager", "code"),
    [
        ({"pageSize": 0}, "000108"),
        ({"pageSize": -1}, "000108"),
        ({"pageSize": 501}, "000108"),
        ({"pageSize": "50"}, "000108"),
        ({"pageSize": 1.0}, "000108"),
        ({"pageNum": 0}, "000108"),
        ({"pageNum": 1_000_001}, "000108"),
        ({"pageNum": True}, "000108"),
        ({"after": 1}, "000108"),
        ({"after": "x" * 201}, "000107"),
        ({"after": "x"}, "000108"),
        ([], "000108"),
        ("1", "000108"),
    ],
)
async def test_a_wrong_pager_is_named_in_the_refusal(reader: ApiClient, path: str, pager: Any, code: str):
    refused(await reader.post(path, {"pager": pager}), 400, code, "pager")


@pytest.mark.parametrize("path", PAGED)
@pytest.mark.parametrize(
    ("pager", "page_num", "page_size"),
    [
        (None, 1, 50),
        ({}, 1, 50),
        ({"pageNum": None, "pageSize": None, "after": None}, 1, 50),
        ({"after": ""}, 1, 50),
        ({"pageSize": 1}, 1, 1),
        ({"pageSize": 500, "pageNum": 2}, 2, 500),
        ({"pageNum": 1_000_000}, 1_000_000, 50),
    ],
)
async def test_the_answers_pager_is_that_of_the_call(
    reader: ApiClient, path: str, pager: Any, page_num: int, page_size: int
):
    answered = (await reader.post(path, {"pager": pager})).data["pager"]
    assert (answered["pageNum"], answered["pageSize"]) == (page_num, page_size)
    assert answered["total"] == (len(PACKAGES) if path == "/package/list" else 0)


async def by_number(client: ApiClient, path: str, rows: str, size: int, filters: Json) -> tuple[list[Any], set[int]]:
    """All rows by page number, and the totals that the pages show."""
    found: list[Any] = []
    totals: set[int] = set()
    for page_num in itertools.count(1):
        data = (await client.post(path, {**filters, "pager": {"pageNum": page_num, "pageSize": size}})).data
        found += data[rows]
        totals.add(data["pager"]["total"])
        if "next" not in data["pager"]:
            return found, totals
        assert len(data[rows]) == size
    raise AssertionError


async def by_cursor(client: ApiClient, path: str, rows: str, size: int, filters: Json) -> tuple[list[Any], set[int]]:
    """All rows by the cursor of each page, and the totals that the pages show."""
    found: list[Any] = []
    totals: set[int] = set()
    after = None
    while True:
        data = (await client.post(path, {**filters, "pager": {"pageSize": size, "after": after}})).data
        found += data[rows]
        totals.add(data["pager"]["total"])
        after = data["pager"].get("next")
        if after is None:
            return found, totals
        assert isinstance(after, str) and len(data[rows]) == size


@pytest.mark.parametrize(
    ("filters", "size"),
    [({}, 97), ({}, 499), ({"locationCode": "FR"}, 7), ({"keyword": "réunion"}, 1), ({"type": "TOPUP"}, 50)],
)
async def test_page_numbers_and_cursors_list_the_same_packages(reader: ApiClient, filters: Json, size: int):
    numbered = await by_number(reader, "/package/list", "packages", size, filters)
    assert numbered == await by_cursor(reader, "/package/list", "packages", size, filters)
    rows, totals = numbered
    assert totals == {len(rows)} and len(set(codes(rows))) == len(rows)
    newest_first = [(package["updateTime"], package["packageCode"]) for package in rows]
    assert [time for time, _ in newest_first] == sorted((time for time, _ in newest_first), reverse=True)


async def test_a_current_catalog_version_is_answered_not_modified(reader: ApiClient):
    version = (await reader.post("/package/list")).data["catalogVersion"]
    data = (await reader.post("/package/list", {"catalogVersion": version, "pager": {"pageSize": 7}})).data
    assert data == {
        "catalogVersion": version,
        "notModified": True,
        "packages": [],
        "pager": {"pageNum": 1, "pageSize": 7, "total": 0},
    }
    assert (await reader.post("/package/list", {"catalogVersion": "0"})).data["notModified"] is False


async def test_updated_since_lists_packages_that_went_off_and_back_on_sale(service: Service, reader: ApiClient):
    async def version() -> str:
        return (await reader.post("/package/list", {"pager": {"pageSize": 1}})).data["catalogVersion"]

    code = "FR-1GB-7D"
    before, since = await version(), datetime.now(UTC).isoformat()
    off_sale = msgspec.structs.replace(PACKAGES[code], status="OFF_SALE")
    await put_packages(service.database, [off_sale], "test", clock.now)
    gone = await eventually(version, lambda current: current != before)
    assert code not in codes(await listed(reader)) and not await listed(reader, packageCode=code)
    [changed] = await listed(reader, updatedSince=since)
    assert (changed["packageCode"], changed["status"]) == (code, "OFF_SALE")
    assert (await reader.post("/package/list", {"catalogVersion": before})).data["notModified"] is False
    refusal = await reader.order(items=[LINE | {"packageCode": code}])
    assert refusal.code == "200014"

    await put_packages(service.database, [PACKAGES[code]], "test", clock.now)
    await eventually(version, lambda current: current != gone)
    [changed] = await listed(reader, updatedSince=since)
    assert (changed["packageCode"], changed["status"]) == (code, "ON_SALE")
    assert (await listed(reader))[0]["packageCode"] == code  # what changed last stands first


async def test_updated_since_lists_changes_of_the_dealers_own_prices_only(service: Service, reader: ApiClient):
    async with service.client(await service.tenant(qps=0)) as client:

        async def version(of: ApiClient = client) -> str:
            return (await of.post("/package/list", {"pager": {"pageSize": 1}})).data["catalogVersion"]

        before, others, since = await version(), await version(reader), datetime.now(UTC).isoformat()
        await service.change(client.tenant_id, prices={"TEST-OK": "1.50", "TEST-DELAY": "off"})
        await eventually(version, lambda current: current != before)
        changed = {package["packageCode"]: package for package in await listed(client, updatedSince=since)}
        assert changed.keys() == {"TEST-OK", "TEST-DELAY"}
        assert (changed["TEST-OK"]["price"], changed["TEST-OK"]["status"]) == ("1.50", "ON_SALE")
        assert changed["TEST-DELAY"]["status"] == "OFF_SALE"
        assert await version(reader) == others and not await listed(reader, updatedSince=since)

        before = await version()
        await service.change(client.tenant_id, markup="10")
        await eventually(version, lambda current: current != before)
        assert len(await listed(client, updatedSince=since)) == len(PACKAGES)


async def test_a_cursor_works_when_its_package_has_left_the_list(service: Service):
    async with service.client(await service.tenant(qps=0)) as client:
        whole = codes(await listed(client))
        first = (await client.post("/package/list", {"pager": {"pageSize": 100}})).data
        last = first["packages"][-1]["packageCode"]
        await service.change(client.tenant_id, prices={last: "off"})
        await eventually(lambda: listed(client, packageCode=last), lambda found: not found)
        rest, after = [], first["pager"]["next"]
        while after:
            data = (await client.post("/package/list", {"pager": {"pageSize": 500, "after": after}})).data
            rest += codes(data["packages"])
            after = data["pager"].get("next")
        assert rest == whole[100:]


@pytest.mark.parametrize(
    ("markup", "of_1_80", "of_a_day"),
    [
        ("0", "1.80", 0),
        ("12.5", "2.03", 1250),
        ("12.49", "2.02", 1249),
        ("-50", "0.90", -5000),
        ("100", "3.60", 10_000),
    ],
)
async def test_a_markup_is_rounded_half_up_and_orders_use_that_price(
    service: Service, markup: str, of_1_80: str, of_a_day: int
):
    single = {"TEST-DELAY": "2.00", "TEST-PARTIAL": "off", "TEST-FAIL": "0"}
    async with service.client(await service.tenant(balance="100", qps=0, markup=markup, prices=single)) as client:
        found = {package["packageCode"]: package["price"] for package in await listed(client)}
        expected = {
            code: money.text(money.marked_up(package.price, of_a_day, "USD"), "USD")
            for code, package in PACKAGES.items()
        }
        expected |= {"TEST-DELAY": "2.00", "TEST-FAIL": "0.00"}
        del expected["TEST-PARTIAL"]
        assert found == expected and found["TEST-OK"] == of_1_80
        assert (await client.order(amount=of_1_80, items=[LINE | {"price": of_1_80}])).code == "000000"
        for code, price in {"TEST-DELAY": "2.00", "TEST-FAIL": "0.00"}.items():
            assert (
                await client.order(amount=price, items=[LINE | {"packageCode": code, "price": price}])
            ).code == "000000"
        assert (await client.order("TEST-PARTIAL")).code == "200014"


async def test_a_dealer_sees_packages_in_its_currency_only(service: Service):
    async with service.client(await service.tenant("EUR", qps=0)) as client:
        [package] = await listed(client)
        assert (package["packageCode"], package["currency"], package["price"]) == ("IN-EURO", "EUR", "1.80")
        assert [region["regionCode"] for region in (await client.post("/region/list")).data["regions"]] == ["US"]
    async with service.client(await service.tenant("JPY", qps=0)) as client:
        assert await listed(client) == [] and (await client.post("/region/list")).data == {"regions": []}


# /region/list


async def test_regions_count_the_packages_on_sale(reader: ApiClient):
    regions = (await reader.post("/region/list")).data["regions"]
    by_code = {region["regionCode"]: region for region in regions}
    assert list(by_code) == sorted(by_code) == sorted({package.location_code for package in PACKAGES.values()})
    assert sum(region["packageCount"] for region in regions) == len(PACKAGES)
    assert by_code["FR"] == {
        "regionCode": "FR",
        "regionName": "France",
        "type": "COUNTRY",
        "continent": "Europe",
        "packageCount": sum(package.location_code == "FR" for package in PACKAGES.values()),
        "subRegions": [],
    }
    bundle = by_code["EU-27"]
    assert (bundle["type"], bundle["regionName"], len(bundle["subRegions"])) == ("REGION", "European Union", 27)
    assert {"regionCode": "FR", "regionName": "France"} in bundle["subRegions"]


@pytest.mark.parametrize(
    ("body", "means"),
    [
        ({"type": "COUNTRY"}, lambda p: p.location_type == "COUNTRY"),
        ({"type": "REGION"}, lambda p: p.location_type == "REGION"),
        ({"type": "GLOBAL"}, lambda p: p.location_type == "GLOBAL"),
        ({"type": None, "keyword": None}, lambda p: True),
        ({"keyword": ""}, lambda p: True),
        ({"keyword": "fr"}, lambda p: "fr" in p.location_code.casefold() or "fr" in p.location_name.casefold()),
        ({"keyword": "TÜRK"}, lambda p: p.location_code == "TR"),
        ({"keyword": "réunion"}, lambda p: p.location_code == "RE"),
        ({"keyword": "fr", "type": "GLOBAL"}, lambda p: False),
        ({"keyword": "no such place"}, lambda p: False),
    ],
)
async def test_each_filter_of_regions(reader: ApiClient, body: Json, means: Callable[[Package], bool]):
    regions = (await reader.post("/region/list", body)).data["regions"]
    assert [region["regionCode"] for region in regions] == sorted(
        {p.location_code for p in PACKAGES.values() if means(p)}
    )


async def test_a_region_counts_the_packages_of_this_dealer(service: Service):
    off = {code: "off" for code, package in PACKAGES.items() if package.location_code in ("FR", "AD")}
    kept = off.popitem()[0]
    async with service.client(await service.tenant(qps=0, prices=off)) as client:
        regions = {
            region["regionCode"]: region["packageCount"]
            for region in (await client.post("/region/list")).data["regions"]
        }
    assert {code: count for code, count in regions.items() if code in ("FR", "AD")} == {PACKAGES[kept].location_code: 1}


@pytest.mark.parametrize(
    ("body", "code", "named"),
    [
        ({"type": "country"}, "000108", "type"),
        ({"keyword": "k" * 101}, "000107", "keyword"),
        ({"keyword": 1}, "000108", "keyword"),
    ],
)
async def test_a_wrong_filter_of_regions_is_named_in_the_refusal(reader: ApiClient, body: Json, code: str, named: str):
    refused(await reader.post("/region/list", body), 400, code, named)


# /esim/query, before a worker has been there


async def test_an_order_that_is_not_fulfilled_yet_is_answered(service: Service):
    async with service.client(await service.tenant(balance="100", qps=0)) as client:
        placed = (await client.order("TEST-OK", remark="for Zoë")).data
        raw = await client.http.post(
            f"{client.url}/open-api/v1/esim/query",
            content=(body := json.dumps({"orderNo": placed["orderNo"]}).encode()),
            headers=client.headers(body),
        )
        assert '"refundAmount":0,' in raw.text  # a number, and the only amount that is one
        data = raw.json()["data"]
        assert data == {name: value for name, value in placed.items() if name != "duplicate"}
        assert TIME(data["createTime"]) and TIME(data["updateTime"])
        assert (data["payStatus"], data["deliveryStatus"], data["orderStatus"]) == ("PAID", "PENDING", "PAID")
        [item] = data["items"]
        assert item.keys() == {"itemNo", "packageCode", "quantity", "itemStatus", "profiles"}
        assert item["profiles"] == [
            {
                "profileId": item["profiles"][0]["profileId"],
                "lifecycleStatus": "PENDING",
                "planUseStatus": "NOT_STARTED",
                "activated": False,
                "cancelled": False,
            }
        ]
        assert (await client.post("/esim/profile/list")).data["records"] == []
        [record] = (await client.post("/esim/profile/list", {"lifecycleStatus": "PENDING"})).data["records"]
        assert record == {
            "orderNo": placed["orderNo"],
            "transactionId": placed["transactionId"],
            "itemNo": item["itemNo"],
            "packageCode": "TEST-OK",
            "profile": item["profiles"][0],
        }


@dataclass(frozen=True)
class Bought:
    """A dealer's orders, delivered and lived with, newest first; its profile records, and when each last changed."""

    client: ApiClient
    service: Service
    orders: list[dict[str, Any]]
    records: list[dict[str, Any]]
    order_changed: dict[str, datetime]
    profile_changed: dict[str, datetime]


LIVES = [
    # what became of the first profiles, in terms of their rows
    "lifecycle_status = 'ACTIVATING', smdp_status = 'INSTALLATION'",
    "lifecycle_status = 'ACTIVATED', activated = true, esim_status = 'IN_USE', plan_use_status = 'STARTED',"
    " plan_use_start_at = now(), data_usage_bytes = 536870912",
    "lifecycle_status = 'ACTIVATED', activated = true, plan_use_status = 'ENDED', plan_use_start_at = now(),"
    " plan_use_end_at = now() + interval '7 days', data_usage_bytes = 1073741824",
    "lifecycle_status = 'CANCELLED', cancelled = true, esim_status = 'CANCEL'",
    "lifecycle_status = 'CANCELLED', cancelled = true, plan_use_status = 'ENDED'",
]


@pytest.fixture(scope="module")
async def bought(worked: Service) -> AsyncIterator[Bought]:
    async with worked.client(await worked.tenant(balance="1000", qps=0)) as client:
        two_lines = [LINE | {"quantity": 3}, LINE | {"packageCode": "TEST-DELAY", "quantity": 2}]
        first = (await client.order(amount="9.00", items=two_lines)).data
        numbers = [first["orderNo"], (await client.order("TEST-PARTIAL")).data["orderNo"]]
        while True:  # until one is of another second
            placed = (await client.order()).data
            numbers.append(placed["orderNo"])
            if placed["createTime"] > first["createTime"]:
                break
            await asyncio.sleep(0.25)
        for number in numbers:
            await client.delivered(number)
        records = (await client.post("/esim/profile/list", {"pager": {"pageSize": 500}})).data["records"]
        async with worked.database.connection() as connection:
            for record, life in zip(records[::-1], LIVES, strict=False):
                sql = f"UPDATE profile SET {life}, updated_at = now() WHERE tenant_id = $1 AND profile_id = $2"
                await connection.execute(sql, client.tenant_id, int(record["profile"]["profileId"]))
            sql = "UPDATE orders SET order_status = 'REFUNDING', updated_at = now() WHERE order_id = $1"
            await connection.execute(sql, first["orderId"])
            sql = "SELECT order_id::text, updated_at FROM orders WHERE tenant_id = $1"
            order_changed = dict(await connection.fetch(sql, client.tenant_id))
            sql = "SELECT profile_id::text, updated_at FROM profile WHERE tenant_id = $1"
            profile_changed = dict(await connection.fetch(sql, client.tenant_id))
        orders = (await client.post("/esim/order/list", {"pager": {"pageSize": 500}})).data["orders"]
        records = (await client.post("/esim/profile/list", {"pager": {"pageSize": 500}})).data["records"]
        yield Bought(client, worked, orders, records, order_changed, profile_changed)


# /esim/query


async def test_an_order_is_found_by_either_key_or_both(bought: Bought):
    for order in bought.orders:
        number, transaction = {"orderNo": order["orderNo"]}, {"transactionId": order["transactionId"]}
        for keys in (number, transaction, number | transaction, number | {"transactionId": None}):
            found = await bought.client.post("/esim/query", keys)
            assert found.code == "000000" and found.data == order


QUERIES: list[tuple[Callable[[Json, Json], Json], int, str, str]] = [
    # keys made of one order and another; status, code and words of the refusal
    (lambda one, other: {}, 400, "000105", "orderNo or transactionId"),
    (lambda one, other: {"orderNo": None, "transactionId": None}, 400, "000105", "orderNo or transactionId"),
    (lambda one, other: {"orderNo": one["orderNo"], "transactionId": other["transactionId"]}, 404, "310272", "order"),
    (lambda one, other: {"orderNo": one["orderNo"], "transactionId": "unknown"}, 404, "310272", "order"),
    (
        lambda one, other: {"orderNo": "D000000000000000000", "transactionId": one["transactionId"]},
        404,
        "310272",
        "order",
    ),
    (lambda one, other: {"transactionId": "unknown"}, 404, "310272", "order"),
    (lambda one, other: {"transactionId": one["transactionId"].upper()}, 404, "310272", "order"),
    (lambda one, other: {"transactionId": one["transactionId"] + "x"}, 404, "310272", "order"),
    (lambda one, other: {"orderNo": one["orderNo"].lower()}, 404, "310272", "order"),
    (lambda one, other: {"orderNo": one["orderNo"][1:]}, 404, "310272", "order"),
    (lambda one, other: {"orderNo": one["orderNo"] + "0"}, 404, "310272", "order"),
    (lambda one, other: {"orderNo": one["orderNo"] + " "}, 404, "310272", "order"),
    (lambda one, other: {"orderNo": "X" + one["orderNo"][1:]}, 404, "310272", "order"),
    (lambda one, other: {"orderNo": str(one["orderId"])}, 404, "310272", "order"),
    (lambda one, other: {"orderNo": "D261399081530000001"}, 404, "310272", "order"),
    (lambda one, other: {"orderNo": "D26112008153000000１"}, 404, "310272", "order"),
    (lambda one, other: {"orderNo": "D-61120081530000001"}, 404, "310272", "order"),
    (lambda one, other: {"orderNo": "D000101000000000000"}, 404, "310272", "order"),
    (lambda one, other: {"orderNo": "D991231235959999999"}, 404, "310272", "order"),
    (lambda one, other: {"orderNo": "nonsense"}, 404, "310272", "order"),
    (lambda one, other: {"orderNo": ""}, 400, "000106", "orderNo"),
    (lambda one, other: {"orderNo": one["orderNo"], "transactionId": ""}, 400, "000106", "transactionId"),
    (lambda one, other: {"orderNo": "D" * 65}, 400, "000107", "orderNo"),
    (lambda one, other: {"transactionId": "t" * 65}, 400, "000107", "transactionId"),
    (lambda one, other: {"transactionId": "a b"}, 400, "000108", "transactionId"),
    (lambda one, other: {"orderNo": one["orderId"]}, 400, "000108", "orderNo"),
]


@pytest.mark.parametrize(("keys", "status", "code", "named"), QUERIES)
async def test_a_query_that_names_no_order_is_refused(
    bought: Bought, keys: Callable[[Json, Json], Json], status: int, code: str, named: str
):
    refused(await bought.client.post("/esim/query", keys(bought.orders[0], bought.orders[-1])), status, code, named)


async def test_a_delivered_profile_has_all_that_installs_it(bought: Bought):
    [profile] = bought.orders[0]["items"][0]["profiles"]
    host, matching_id = profile["activationCode"].removeprefix("LPA:1$").split("$")
    assert re.fullmatch(r"[0-9]{18,20}", profile["iccid"]) and profile["profileId"].isdigit()
    assert (profile["smdpAddress"], profile["matchingId"]) == (host, matching_id)
    assert profile["installUrls"].keys() == {"ios", "android"}
    assert profile["qrCodeUrl"].startswith(f"{bought.service.url}/qr/{bought.client.tenant_id}/{profile['profileId']}/")
    assert (profile["lifecycleStatus"], profile["planUseStatus"]) == ("DELIVERED", "NOT_STARTED")
    assert (profile["dataUsageBytes"], profile["remainDataBytes"], profile["usagePercent"]) == (0, 1_073_741_824, 0)
    half_used = bought.orders[-1]["items"][0]["profiles"][1]
    assert (
        half_used["activated"] is True and TIME(half_used["planUseStartTime"]) and half_used["esimStatus"] == "IN_USE"
    )
    assert (half_used["dataUsageBytes"], half_used["remainDataBytes"], half_used["usagePercent"]) == (2**29, 2**29, 50)


# /esim/order/list, /esim/profile/list

Records = list[dict[str, Any]]
Filters = list[tuple[str, Any, Callable[[dict[str, Any]], bool]]]


def time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def spelled(at: datetime, hours: float = 0) -> str:
    return at.astimezone(timezone(timedelta(hours=hours))).isoformat()


def times(rows: Records, changed: Mapping[str, datetime], created: Callable, row_id: Callable) -> Filters:
    """Filters by each time that occurs, and around it."""
    filters: Filters = []
    for second in sorted({created(row) for row in rows}):
        for off in (timedelta(0), timedelta(milliseconds=-1), timedelta(milliseconds=1)):
            at = second + off
            filters.append(("startTime", spelled(at), lambda row, at=at: created(row) >= at))
            filters.append(("endTime", spelled(at, 5.5), lambda row, at=at: created(row) < at))
    for at in sorted(set(changed.values()))[:: max(1, len(changed) // 3)]:
        filters.append(("updatedSince", spelled(at, -8), lambda row, at=at: changed[str(row_id(row))] >= at))
    return filters


def order_filters(bought: Bought) -> Filters:
    def created(order: Json) -> datetime:
        return time(order["createTime"])

    words = ("PAID", "FULFILLING", "COMPLETED", "REFUNDING", "REFUNDED")
    by_status: Filters = [("orderStatus", word, lambda one, word=word: one["orderStatus"] == word) for word in words]
    nothing: Filters = [("orderStatus", None, lambda one: True), ("startTime", None, lambda one: True)]
    return by_status + nothing + times(bought.orders, bought.order_changed, created, lambda one: one["orderId"])


def profile_filters(bought: Bought) -> Filters:
    orders = {order["orderNo"]: order for order in bought.orders}

    def created(record: Json) -> datetime:
        return time(orders[record["orderNo"]]["createTime"])

    filters = times(bought.records, bought.profile_changed, created, lambda one: one["profile"]["profileId"])
    for record in (bought.records[0], bought.records[-1], bought.records[-5]):
        for name in ("orderNo", "transactionId", "itemNo", "packageCode"):
            filters.append((name, record[name], lambda one, name=name, value=record[name]: one[name] == value))
        profile = record["profile"]
        filters.append(("iccid", profile["iccid"], lambda one, i=profile["iccid"]: one["profile"]["iccid"] == i))
        for spelling in (profile["profileId"], int(profile["profileId"])):
            filters.append(
                ("profileId", spelling, lambda one, i=profile["profileId"]: one["profile"]["profileId"] == i)
            )
    for words in (
        "PENDING",
        "DELIVERED",
        "ACTIVATING",
        "ACTIVATED",
        "CANCELLED",
        ["DELIVERED", "ACTIVATED"],
        ["PENDING"],
    ):
        any_of = [words] if isinstance(words, str) else words
        filters.append(
            ("lifecycleStatus", words, lambda one, any_of=any_of: one["profile"]["lifecycleStatus"] in any_of)
        )
    for word in ("NOT_STARTED", "STARTED", "ENDED"):
        filters.append(("planUseStatus", word, lambda one, word=word: one["profile"]["planUseStatus"] == word))
    for flag in (True, False):
        filters.append(("cancelled", flag, lambda one, flag=flag: one["profile"]["cancelled"] is flag))
    unknown = {
        "orderNo": ["D000101000000000000", "nonsense"],
        "transactionId": ["unknown"],
        "itemNo": ["1", "nonsense", bought.orders[0]["orderNo"], bought.records[0]["itemNo"] + "0", "9" * 19],
        "profileId": ["1", 1, 0, -1, "nonsense", 2**53, "9" * 16, "１"],
        "iccid": ["8" * 20],
        "packageCode": ["NO-SUCH"],
    }
    filters += [(name, value, lambda one: False) for name, values in unknown.items() for value in values]
    filters += [(name, None, lambda one: True) for name in ("orderNo", "lifecycleStatus", "cancelled", "updatedSince")]
    return filters


LISTS: list[tuple[str, str, Callable[[Bought], Filters], Callable[[Bought], Records]]] = [
    ("/esim/order/list", "orders", order_filters, lambda bought: bought.orders),
    ("/esim/profile/list", "records", profile_filters, lambda bought: bought.records),
]


async def test_the_lists_hold_everything_newest_first(bought: Bought):
    ids = [order["orderId"] for order in bought.orders]
    assert ids == sorted(ids, reverse=True) and len(ids) >= 4
    profile_ids = [int(record["profile"]["profileId"]) for record in bought.records]
    assert profile_ids == sorted(profile_ids, reverse=True)
    in_orders = {
        profile["profileId"]: (order["orderNo"], order["transactionId"], item["itemNo"], item["packageCode"], profile)
        for order in bought.orders
        for item in order["items"]
        for profile in item["profiles"]
    }
    in_records = {record["profile"]["profileId"]: tuple(record.values()) for record in bought.records}
    assert in_records == in_orders
    for order in bought.orders:
        assert order["amount"] == f"{1.8 * sum(item['quantity'] for item in order['items']):.2f}"


@pytest.mark.parametrize(("path", "rows", "filters", "everything"), LISTS)
async def test_every_filter_of_a_list_alone_and_with_each_other(
    bought: Bought, path: str, rows: str, filters: Callable, everything: Callable
):
    whole, single = everything(bought), filters(bought)
    pairs = [pair for pair in itertools.combinations(single, 2) if pair[0][0] != pair[1][0]]
    for chosen in [*((one,) for one in single), *pairs[:: 1 + len(pairs) // 300]]:
        body = {name: value for name, value, _ in chosen} | {"pager": {"pageSize": 500}}
        data = (await bought.client.post(path, body)).data
        meant = [row for row in whole if all(means(row) for _, _, means in chosen)]
        assert data[rows] == meant and data["pager"]["total"] == len(meant), body
        assert "next" not in data["pager"]


@pytest.mark.parametrize(("path", "rows", "_", "everything"), LISTS)
@pytest.mark.parametrize("size", [1, 2, 3, 500])
@pytest.mark.parametrize("filters", [{}, {"startTime": "2020-01-01T00:00:00Z"}, {"endTime": "2020-01-01T00:00:00Z"}])
async def test_page_numbers_and_cursors_list_the_same_rows(
    bought: Bought, path: str, rows: str, _: Callable, everything: Callable, size: int, filters: Json
):
    expected = [] if "endTime" in filters else everything(bought)
    for paged in (by_number, by_cursor):
        assert await paged(bought.client, path, rows, size, filters) == (expected, {len(expected)})


async def test_a_new_order_does_not_shift_pages_by_cursor(worked: Service):
    async with worked.client(await worked.tenant(balance="100", qps=0)) as client:
        placed = [(await client.order()).data["orderNo"] for _ in range(5)]
        seen, after = [], None
        while True:
            data = (await client.post("/esim/order/list", {"pager": {"pageSize": 2, "after": after}})).data
            seen += [order["orderNo"] for order in data["orders"]]
            if (after := data["pager"].get("next")) is None:
                break
            await client.order()
        assert seen == placed[::-1]


@pytest.mark.parametrize(
    ("path", "body", "code", "named"),
    [
        ("/esim/order/list", {"orderStatus": "paid"}, "000108", "orderStatus"),
        ("/esim/order/list", {"startTime": "2026-11-20"}, "000108", "startTime"),
        ("/esim/profile/list", {"lifecycleStatus": ["DELIVERED", "x"]}, "000108", "lifecycleStatus"),
        ("/esim/profile/list", {"lifecycleStatus": "delivered"}, "000108", "lifecycleStatus"),
        ("/esim/profile/list", {"planUseStatus": "x"}, "000108", "planUseStatus"),
        ("/esim/profile/list", {"cancelled": 1}, "000108", "cancelled"),
        ("/esim/profile/list", {"iccid": 89}, "000108", "iccid"),
        ("/esim/profile/list", {"iccid": "8" * 21}, "000108", "iccid"),
        ("/esim/profile/list", {"iccid": "８" * 20}, "000108", "iccid"),
        ("/esim/profile/list", {"profileId": True}, "000108", "profileId"),
        ("/esim/profile/list", {"profileId": ""}, "000106", "profileId"),
        ("/esim/profile/list", {"itemNo": ""}, "000106", "itemNo"),
        ("/esim/profile/list", {"itemNo": 1}, "000108", "itemNo"),
        ("/esim/profile/list", {"transactionId": "a b"}, "000108", "transactionId"),
        ("/esim/profile/list", {"packageCode": "x" * 65}, "000107", "packageCode"),
        ("/esim/profile/list", {"orderNo": "nonsense", "pager": {"after": "x"}}, "000108", "pager.after"),
    ],
)
async def test_a_wrong_filter_of_a_list_is_named_in_the_refusal(
    reader: ApiClient, path: str, body: Json, code: str, named: str
):
    refused(await reader.post(path, body), 400, code, named)


# QR codes


def delivered_profile(bought: Bought, cancelled: bool = False) -> dict[str, Any]:
    return next(one["profile"] for one in bought.records if one["profile"]["cancelled"] is cancelled)


@pytest.mark.parametrize(
    ("ending", "content_type", "draw"),
    [("", "image/png", qr.png), (".png", "image/png", qr.png), (".svg", "image/svg+xml", qr.svg)],
)
async def test_a_qr_code_is_served_unsigned_as_png_and_svg(
    bought: Bought, ending: str, content_type: str, draw: Callable[[str], bytes]
):
    profile = delivered_profile(bought)
    picture = await bought.client.http.get(profile["qrCodeUrl"] + ending)
    assert (picture.status_code, picture.headers["Content-Type"].partition(";")[0]) == (200, content_type)
    assert picture.content == draw(profile["activationCode"])
    assert picture.headers["Cache-Control"] == "private, no-store"
    assert picture.headers["X-Content-Type-Options"] == "nosniff"
    assert picture.headers["Referrer-Policy"] == "no-referrer"


async def test_a_qr_link_stays_the_same_and_is_unguessable(bought: Bought):
    profile = delivered_profile(bought)
    again = (await bought.client.post("/esim/profile/list", {"profileId": profile["profileId"]})).data["records"]
    assert again[0]["profile"]["qrCodeUrl"] == profile["qrCodeUrl"]
    tokens = {record["profile"]["qrCodeUrl"].rpartition("/")[2] for record in bought.records}
    assert len(tokens) == len(bought.records) and all(len(token) >= 22 for token in tokens)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda tenant, profile, token: (tenant, profile, token[:-1]),
        lambda tenant, profile, token: (tenant, profile, token + "x"),
        lambda tenant, profile, token: (tenant, profile, token.swapcase()),
        lambda tenant, profile, token: (tenant, profile, "-" * len(token)),
        lambda tenant, profile, token: (tenant, profile, "x"),
        lambda tenant, profile, token: (tenant, profile, "%C3%A9"),
        lambda tenant, profile, token: (tenant, profile, token + ".gif"),
        lambda tenant, profile, token: (tenant, profile, token + ".svg.svg"),
        lambda tenant, profile, token: (tenant, profile, token + "/"),
        lambda tenant, profile, token: (tenant, int(profile) + 1, token),
        lambda tenant, profile, token: (tenant + 1, profile, token),
        lambda tenant, profile, token: (0, profile, token),
        lambda tenant, profile, token: (-tenant, profile, token),
        lambda tenant, profile, token: (tenant, f"+{profile}", token),
        lambda tenant, profile, token: (tenant, f"{profile}.0", token),
        lambda tenant, profile, token: (tenant, 2**53, token),
        lambda tenant, profile, token: (tenant, 10**15, token),
        lambda tenant, profile, token: (10**40, profile, token),
        lambda tenant, profile, token: (tenant, "9" * 5000, token),
        lambda tenant, profile, token: (tenant, "١", token),
    ],
)
async def test_a_qr_link_with_any_mistake_shows_nothing(bought: Bought, spoil: Callable):
    profile = delivered_profile(bought)
    token = profile["qrCodeUrl"].rpartition("/")[2]
    tenant_id, profile_id, spoiled = spoil(bought.client.tenant_id, profile["profileId"], token)
    link = f"/qr/{tenant_id}/{profile_id}/{spoiled}"
    refused(await bought.client.send(link, b"", {}, "GET"), 404, "000112", "")


async def test_the_qr_code_of_a_cancelled_profile_is_not_shown(bought: Bought):
    link = delivered_profile(bought, cancelled=True)["qrCodeUrl"].removeprefix(bought.service.url)
    refused(await bought.client.send(link, b"", {}, "GET"), 404, "000112", "no QR code at this address")


async def test_a_token_shows_no_other_profile_and_no_other_dealers_profile(bought: Bought):
    async with bought.service.client(await bought.service.tenant(balance="10", qps=0)) as stranger:
        order = await stranger.delivered((await stranger.order()).data["orderNo"])
        theirs = order["items"][0]["profiles"][0]
        mine = [record["profile"] for record in bought.records if not record["profile"]["cancelled"]][:2]
        tokens = [one["qrCodeUrl"].rpartition("/")[2] for one in (theirs, *mine)]
        owners = [(stranger.tenant_id, theirs), *((bought.client.tenant_id, one) for one in mine)]
        for (tenant_id, profile), token in itertools.product(owners, tokens):
            answer = await stranger.http.get(f"{stranger.url}/qr/{tenant_id}/{profile['profileId']}/{token}")
            assert (answer.status_code == 200) is profile["qrCodeUrl"].endswith(token)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
async def test_a_qr_code_accepts_only_reads(bought: Bought, method: str):
    link = delivered_profile(bought)["qrCodeUrl"].removeprefix(bought.service.url)
    refused(await bought.client.send(link, b"", {}, method), 404, "000112", "path")


# /webhook/set, /webhook/query


@pytest.fixture
async def listener(service: Service) -> AsyncIterator[ApiClient]:
    async with service.client(await service.tenant(qps=0)) as client:
        yield client


async def test_a_new_dealer_has_no_callback_url(listener: ApiClient):
    not_set = {
        "callbackUrl": "",
        "enabled": False,
        "state": "NOT_SET",
        "consecutiveFailures": 0,
        "standardHeaders": False,
    }
    assert (await listener.post("/webhook/query")).data == not_set


@pytest.mark.parametrize("removal", ["", None])
async def test_a_callback_url_is_set_changed_and_removed(listener: ApiClient, removal: str | None):
    for url in ("https://example.com/hooks?a=1&b=%C3%A9", "http://127.0.0.1:8080/", "https://EXAMPLE.com:8443"):
        data = (await listener.post("/webhook/set", {"callbackUrl": url})).data
        assert TIME(data.pop("updateTime")) and data == {"callbackUrl": url, "enabled": True, "standardHeaders": False}
        state = {
            "callbackUrl": url,
            "enabled": True,
            "state": "ACTIVE",
            "consecutiveFailures": 0,
            "standardHeaders": False,
        }
        assert (await listener.post("/webhook/query")).data == state
    data = (await listener.post("/webhook/set", {"callbackUrl": removal})).data
    assert TIME(data.pop("updateTime")) and data == {"callbackUrl": "", "enabled": False, "standardHeaders": False}
    assert (await listener.post("/webhook/query")).data["state"] == "NOT_SET"


@pytest.mark.parametrize(
    ("url", "status", "code", "named"),
    [
        ("example.com/hooks", 422, "310501", "absolute"),
        ("ftp://example.com/", 422, "310501", "absolute"),
        ("https://", 422, "310501", "host"),
        ("https://user:secret@example.com/", 422, "310501", "user information"),
        ("https://example.com/#top", 422, "310501", "fragment"),
        ("https://example.com:22/", 422, "310501", "port 22"),
        ("http://10.0.0.1/", 422, "310501", "not a public"),
        ("http://2130706433/", 422, "310501", "address"),
        ("http://0x7f.1/", 422, "310501", "address"),
        ("https://exämple.com/", 422, "310501", "host"),
        (" https://example.com/", 422, "310501", "absolute"),
        ("https://example.com/" + "a" * 493, 400, "000107", "512"),
        (7, 400, "000108", "callbackUrl"),
        (["https://example.com/"], 400, "000108", "callbackUrl"),
        ("https://example.com/\0", 400, "000108", "NUL"),
    ],
)
async def test_a_refused_callback_url_leaves_the_earlier_one(
    listener: ApiClient, url: Any, status: int, code: str, named: str
):
    await listener.post("/webhook/set", {"callbackUrl": "https://example.com/before"})
    refused(await listener.post("/webhook/set", {"callbackUrl": url}), status, code, named)
    assert (await listener.post("/webhook/query")).data["callbackUrl"] == "https://example.com/before"


async def test_a_callback_url_is_required(listener: ApiClient):
    refused(await listener.post("/webhook/set"), 400, "000105", "callbackUrl")


# /openapi.json, /healthz


async def test_the_openapi_document_names_this_service_and_every_operation(service: Service, reader: ApiClient):
    answer = await reader.http.get(f"{service.url}/openapi.json")
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/json")
    document = answer.json()
    assert document["openapi"].startswith("3.") and document["servers"][0]["url"] == service.url
    for path in ("/health", "/account/balance", *PAGED, "/region/list", "/esim/order", "/esim/query", "/webhook/set"):
        assert f"/open-api/v1{path}" in document["paths"]


async def test_healthz_needs_no_authentication(service: Service, reader: ApiClient):
    answer = await reader.http.get(f"{service.url}/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "UP"})


@pytest.mark.parametrize("path", ["/openapi.json", "/healthz"])
async def test_pages_beside_the_operations_accept_only_reads(reader: ApiClient, path: str):
    refused(await reader.send(path, b"{}", {}, "POST"), 404, "000112", "path")
    assert (await reader.http.head(f"{reader.url}{path}")).status_code == 200


async def test_another_process_returns_the_same_answers(worked: Service, bought: Bought, service: Service):
    elsewhere = replace(bought.client, url=service.url)
    found = (await elsewhere.post("/esim/query", {"orderNo": bought.orders[0]["orderNo"]})).data
    assert found["orderId"] == bought.orders[0]["orderId"]
    assert found["items"][0]["profiles"][0]["qrCodeUrl"].startswith(f"{service.url}/qr/")
