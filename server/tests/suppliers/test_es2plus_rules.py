"""What an SM-DP+ says, as tables: status codes, answers, notifications in every known form (GSMA SGP.22, ES2+)."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dealer_server.rules.esim import activation_code
from dealer_server.rules.lifecycle.lifecycle import Report
from dealer_server.suppliers.es2plus import messages
from dealer_server.suppliers.es2plus.messages import POINTS, Executed, Failed, Meaning, Notification, Unclear
from support.suppliers.smdp import iccids, progress

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
AT = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
[ICCID] = iccids(1)
EID = "89049032123451234512345678901235"


def answer(status: str = "Executed-Success", code: str = "", **payload: Any) -> bytes:
    said: dict[str, Any] = {"status": status}
    if code:
        subject, _, reason = code.partition("/")
        said["statusCodeData"] = {"subjectCode": subject, "reasonCode": reason, "message": "SECRET"}
    return msgspec.json.encode({"header": {"functionExecutionStatus": said}, **payload})


def told(point: object = 3, status: str = "Executed-Success", table: str = "standard", **fields: Any) -> Notification:
    return messages.notification(progress(ICCID, point, status, **fields), POINTS[table], NOW)  # type: ignore


# Status codes


@pytest.mark.parametrize(
    ("code", "meaning"),
    [
        ("8.2.5/3.7", "OUT_OF_STOCK"),
        ("8.2.5/3.9", "CONFIG"), ("8.2.1/3.9", "CONFIG"), ("8.2.1/1.2", "CONFIG"), ("8.2.5/1.2", "CONFIG"),
        ("1.1/3.9", "CONFIG"), ("1.1/1.2", "CONFIG"), ("1.1/2.1", "CONFIG"), ("8.2.5/3.8", "CONFIG"),
        ("8.2.1/3.3", "CONFLICT"), ("8.2.6/3.3", "CONFLICT"), ("8.2.6/3.10", "CONFLICT"), ("8.1.1/3.10", "CONFLICT"),
        ("8.2.1/3.5", "CONFLICT"), ("8.8.5/4.1", "CONFLICT"), ("8.8.5/6.4", "CONFLICT"), ("8.2.7/6.4", "CONFLICT"),
        ("8.1.1/2.2", "BAD_REQUEST"), ("1.6/2.1", "BAD_REQUEST"),
        ("1.6/2.2", "BAD_REQUEST"), ("1.6/2.3", "BAD_REQUEST"),
        ("8.9/4.2", "TEMPORARY"), ("8.9/5.1", "TEMPORARY"), ("1.2/4.4", "TEMPORARY"),
        ("1.2/4.2", "UNKNOWN"), ("1.6/5.3", "UNKNOWN"), ("1.6/5.4", "UNKNOWN"),
    ],
)  # fmt: skip
def test_a_status_code_has_the_class_of_the_table(code: str, meaning: Meaning):
    found = messages.answer(answer("Failed", code))
    assert isinstance(found, Failed)
    assert found.meaning == meaning and found.message.startswith(f"{code}: ")


@pytest.mark.parametrize(
    "code", ["8.2.6/3.1", "8.1.1/3.1", "8.2.1/3.30", "8.2.10/3.3", "1.10/3.9", "11/3.9", "9/9", "/"]
)
def test_a_code_that_is_not_in_the_table_means_that_nobody_knows(code: str):
    assert Failed(code).meaning == "UNKNOWN"


@pytest.mark.parametrize("code", ["8.2.1/SECRET", "1.1/SECRET", "1.1/" + "3" * 17, "SECRET/3.3", "8.2.1/3.3\n"])
def test_a_malformed_code_is_unknown_and_not_repeated(code: str):
    assert Failed(code).meaning == "UNKNOWN" and Failed(code).message == "?: a code we do not know"


# Answers


def test_an_executed_function_answers_what_it_has():
    found = messages.answer(answer(iccid=f"{ICCID}F", matchingId="ABC", smdpAddress="rsp.example.com", eid=EID))
    assert found == Executed(f"{ICCID}F", "ABC", "rsp.example.com")
    assert messages.answer(answer("Executed-WithWarning")) == Executed()
    assert messages.answer(answer("Executed-Success", "0/0")) == Executed()


@pytest.mark.parametrize(
    "body",
    [
        b"", b"null", b"[]", b"{}", b"<html>Bad gateway</html>", b'{"header": {}}', b'{"header": 1}', b"\xff\xfe{\x00",
        b'{"header": {"functionExecutionStatus": "Executed-Success"}}', answer()[:-9], answer("executed"),
        answer("Failed"), answer("Expired", "8.2.5/3.7"), answer("Done", "8.2.5/3.7"), answer(iccid=8900),
        answer(matchingId=["A"]),
        b'{"header": {"functionExecutionStatus": {"status": "Failed", "statusCodeData": {"subjectCode": "8.2.6",'
        b' "reasonCode": 3.10}}}}', b'{"a":' * 100_000, b'{"success": true, "code": "000", "obj": {"iccid": "8900"}}',
    ],
)  # fmt: skip
def test_what_is_not_understood_says_nothing(body: bytes):
    assert isinstance(messages.answer(body), Unclear)


@given(st.binary(max_size=200))
def test_no_answer_breaks_the_reading(body: bytes):
    assert isinstance(messages.answer(body), Unclear)


# What is sent


@pytest.mark.parametrize(
    ("iccid", "sent"), [(ICCID, f"{ICCID}F"), (ICCID[:18], f"{ICCID[:18]}FF"), (f"{ICCID}1", f"{ICCID}1")]
)
def test_an_iccid_is_padded_to_20_places_where_asked(iccid: str, sent: str):
    assert messages.padded(iccid, pad=True) == sent
    assert messages.padded(iccid, pad=False) == iccid


def test_the_first_address_that_is_a_host_goes_into_the_activation_code():
    code = messages.activation_code(("a.example.com", "b.example.com"), "ID-1")
    assert code == "LPA:1$a.example.com$ID-1" == activation_code.parse(code).text
    for answered in (None, "", "a.example.com:8000", "https://a.example.com", "a$b.example.com"):
        assert messages.activation_code((answered, "b.example.com"), "ID-1") == "LPA:1$b.example.com$ID-1"


@pytest.mark.parametrize("matching_id", ["", "A B", "A$1", "É", "A" * 129])
def test_a_malformed_matching_id_is_refused_without_being_repeated(matching_id: str):
    with pytest.raises(ValueError, match="MatchingID") as raised:
        messages.activation_code((None, "b.example.com"), matching_id)
    assert not matching_id or matching_id not in str(raised.value)


@pytest.mark.parametrize(
    ("token", "matching_id"),
    [
        ("AB-1", "AB-1"),
        ("LPA:1$h.example.com$AB-1", "AB-1"),
        ("1$h.example.com$AB-1$$1", "AB-1"),
        ("", ""),
        (None, None),
    ],
)
def test_an_ac_token_is_a_matching_id_or_a_whole_code(token: str | None, matching_id: str | None):
    assert messages.ProfileStatus(ICCID, ac_token=token).matching_id == matching_id


# Notifications


@pytest.mark.parametrize(
    ("table", "points"),
    [
        ("standard", {3: "DOWNLOAD", 4: "INSTALLATION"}),
        ("ostelco", {3: "DOWNLOAD", 4: "INSTALLATION", 5: "DELETED"}),
        ("monogoto", {3: "DOWNLOAD", 4: "INSTALLATION", 5: "INSTALLATION", 6: "ENABLED", 7: "DISABLED", 8: "DELETED"}),
        ("cmi", {3: "DOWNLOAD", 4: "INSTALLATION", 5: "DELETED", 101: "ENABLED", 102: "DISABLED"}),
    ],
)
def test_each_vendor_has_its_own_notification_points(table: str, points: dict[int, str]):
    for point in range(120):
        found = told(point, table=table)
        if point in points:
            assert (found.kind, found.report) == (points[point], Report(AT, points[point]))
        else:
            assert found.report is None
            assert (found.kind == "UNKNOWN_POINT") == (point not in (1, 2))


@pytest.mark.parametrize(
    ("point", "code", "word"),
    [
        (1, "8.8.5/6.4", "ERROR"), (2, "8.2.7/6.4", "ERROR"), (1, "", "ERROR"), (3, "8.8.5/4.1", "ERROR"),
        (4, "8.8.5/6.4", "ERROR"), (4, "8.2.1/3.3", "RELEASED"), (4, "", "RELEASED"), (3, "8.1/4.8", None),
        (5, "", None), (99, "8.8.5/6.4", None),
    ],
)  # fmt: skip
def test_a_failed_step_leaves_the_profile_downloadable_or_lost(point: int, code: str, word: str | None):
    subject, _, reason = code.partition("/")
    data = {"statusCodeData": {"subjectCode": subject, "reasonCode": reason}} if code else {}
    found = told(point, notificationPointStatus={"status": "Failed", **data}, table="ostelco", eid=EID)
    assert found.report == (None if word is None else Report(AT, word))
    assert found.kind == "UNKNOWN_POINT" or found.kind.endswith("_FAILED")


def test_a_step_that_expired_changes_nothing():
    assert told(4, "Expired").report is None and told(1, "").report is None


@pytest.mark.parametrize(
    ("eid", "kept"), [(EID, EID), (None, None), ("", None), (EID[:31], None), (EID + "1", None), (7, None)]
)
def test_the_eid_is_kept_where_it_is_one(eid: object, kept: str | None):
    report = told(3, eid=eid).report
    assert report is not None and report.eid == kept


def test_the_wild_example_is_read():
    """A notification of an SM-DP+: string id, timeStamp with an epoch, a constant call id, success with a code."""
    wild = {
        "header": {"functionRequesterIdentifier": "x", "functionCallIdentifier": "handleDownloadProgressInfo"},
        "timestamp": None,
        "timeStamp": str(int(AT.timestamp() * 1000)),
        "notificationPointStatus": {
            "status": "Executed-Success",
            "statusCodeData": {"subjectCode": "0", "reasonCode": "0"},
        },
        "tac": "35203000",
        "imei": None,
    }
    found = messages.notification(progress(f"{ICCID}F", "3", **wild), POINTS["cmi"], NOW)
    assert (found.iccid, found.report) == (ICCID, Report(AT, "DOWNLOAD"))


@pytest.mark.parametrize(
    ("when", "at"),
    [
        ("2026-11-21T09:00:00Z", AT), ("2026-11-21T10:00:00+01:00", AT), ("2026-11-21T09:00:00", AT),
        ("2026-11-21 09:00:00.000000+00:00", AT), (int(AT.timestamp()), AT), (AT.timestamp() * 1000, AT),
        (str(int(AT.timestamp())), AT), ("2026-11-22T09:00:00Z", NOW), (4_000_000_000, NOW), (None, NOW), ("", NOW),
        ("yesterday", NOW), (0, NOW), (-1, NOW), ("0001-01-01T00:00:00Z", NOW), (10**300, NOW), (1e300, NOW), ([], NOW),
        ("9" * 5000, NOW), ({}, NOW), ("٣", NOW),
    ],
)  # fmt: skip
def test_the_time_is_read_in_every_form_and_is_never_in_the_future(when: object, at: datetime):
    assert messages.moment(when, NOW) == at


@given(st.one_of(st.none(), st.text(), st.integers(), st.floats(allow_nan=True), st.booleans()))
def test_no_time_breaks_the_reading(when: object):
    assert messages.moment(when, NOW) <= NOW


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"{}", b"null", b"\xff", b"[" * 100_000, progress("", 3), progress("123", 3), progress(ICCID, None),
        progress(ICCID, "three"), progress(ICCID, ""), progress(ICCID, -3), progress(ICCID, 3.5), progress(ICCID, [3]),
        progress(ICCID, notificationPointStatus=None), progress(ICCID, notificationPointStatus="Executed-Success"),
        progress(None), progress(8900), progress("SECRET" * 3),
    ],
)  # fmt: skip
def test_what_is_no_notification_is_refused_without_being_repeated(body: bytes):
    with pytest.raises(ValueError) as raised:
        messages.notification(body, POINTS["standard"], NOW)
    assert "SECRET" not in str(raised.value) and raised.value.__cause__ is None


@given(st.binary(max_size=200))
def test_no_message_breaks_the_reading(body: bytes):
    with pytest.raises(ValueError):
        messages.notification(body, POINTS["standard"], NOW)


def test_a_message_that_comes_twice_has_the_same_key_whatever_its_call_id():
    assert told(4, resultData="AAA=").key == told("4", resultData="AAA=").key  # `told` makes a new call id each time
    assert len(told().key) == 32


def test_messages_that_differ_have_different_keys():
    later = (AT + timedelta(seconds=1)).isoformat()
    different = [told(3), told(4), told(4, "Failed"), told(4, resultData="AAA="), told(4, resultData="AAB="),
                 told(4, timestamp=later), told(99), told(98)]  # fmt: skip
    other = messages.notification(progress(iccids(2)[1], 3), POINTS["standard"], NOW)
    assert len({one.key for one in [*different, other]}) == 9
