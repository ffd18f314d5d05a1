"""The form of a supplier's settings: for each kind its fields, with labels and what they accept. Every setting of
suppliers/registry.py has a field here (server/tests/console/test_console_suppliers.py)."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

import msgspec

Form = Literal["text", "url", "secret", "pem", "secret pem", "number", "flag", "lines", "table"]


class Field(NamedTuple):
    """One setting. `accepts` completes "must be". `rare`: folded away, its default is usually right."""

    name: str
    label: str
    accepts: str
    form: Form = "text"
    help: str = ""
    rare: bool = False
    unit: str = ""

    @property
    def secret(self) -> bool:
        return self.form in ("secret", "secret pem")


class KindOfSupplier(NamedTuple):
    """`code`: an example of one."""

    name: str
    title: str
    text: str
    code: str
    fields: tuple[Field, ...]

    @property
    def needs(self) -> str:
        """What must be at hand: "base URL, access code, secret key"."""
        labels = [field.label for field in self.fields if not field.rare]
        return ", ".join(one[:1].lower() + one[1:] if one.split()[0].istitle() else one for one in labels)


_SECONDS = "seconds above 0, such as 3 or 2.5"
_PARALLEL = Field(
    "parallel",
    "Parallel calls",
    "a whole number from 1 to 64",
    "number",
    "For each worker process.",
    rare=True,
    unit="calls",
)
_PER_SECOND = Field(
    "perSecond",
    "Rate limit",
    "a number above 0 such as 8",
    "number",
    "What it allows.",
    rare=True,
    unit="calls per second",
)

KINDS = {
    kind.name: kind
    for kind in (
        KindOfSupplier(
            "rt_upstream",
            "RT reseller API",
            "A reseller API of the RT-* family, such as eSIM Access.",
            "rt:ea",
            (
                Field("baseUrl", "Base URL", "an address such as https://api.example.com", "url"),
                Field("accessCode", "Access code", "1 to 128 printed characters, as the supplier gave it"),
                Field("secretKey", "Secret key", "1 to 256 characters, as the supplier gave it", "secret"),
                Field(
                    "senderIps",
                    "Webhook sender addresses",
                    "IP addresses or networks such as 203.0.113.0/24, one a line",
                    "lines",
                    "One per line. Empty: any.",
                    rare=True,
                ),
                _PER_SECOND,
                _PARALLEL,
                Field(
                    "connectSeconds",
                    "Connect timeout",
                    "seconds above 0, at most 10",
                    "number",
                    rare=True,
                    unit="seconds",
                ),
                Field(
                    "readSeconds",
                    "Response timeout",
                    "seconds above 0, at most 35",
                    "number",
                    rare=True,
                    unit="seconds",
                ),
                Field(
                    "settleSeconds",
                    "Settle after",
                    "seconds from 0 to 3600",
                    "number",
                    "How long after a lost answer an order that is not listed may still turn up.",
                    True,
                    "seconds",
                ),
            ),
        ),
        KindOfSupplier(
            "chain",
            "Another eSIM Dealer",
            "Another instance of this service, from which we buy as its dealer.",
            "chain:b",
            (
                Field("baseUrl", "Base URL", "an address such as https://dealer.example.com", "url"),
                Field("appKey", "AppKey", "1 to 64 letters, digits or _"),
                Field("appSecret", "AppSecret", "8 to 128 characters, as that instance gave it", "secret"),
                _PER_SECOND,
                _PARALLEL,
            ),
        ),
        KindOfSupplier(
            "es2plus",
            "SM-DP+ over ES2+",
            "An SM-DP+ of an operator or a vendor (GSMA SGP.22).",
            "es2:acme",
            (
                Field("baseUrl", "Base URL", "an https address such as https://smdp.example.com:8443", "url"),
                Field(
                    "requesterId",
                    "Requester ID",
                    "the functionRequesterIdentifier agreed with the SM-DP+, 1 to 128 characters",
                    help="functionRequesterIdentifier, as agreed.",
                ),
                Field(
                    "smdpAddress",
                    "SM-DP+ address",
                    "the host that phones download from, such as rsp.example.com",
                    help="The host that phones download from.",
                ),
                Field(
                    "ca",
                    "Their CA certificate",
                    "certificates as PEM text",
                    "pem",
                    "Who signs the SM-DP+'s certificate.",
                ),
                Field("cert", "Our certificate", "our certificate as PEM text; it must fit the key", "pem"),
                Field("key", "Our private key", "the key of our certificate as PEM text, no password", "secret pem"),
                Field(
                    "notificationTable",
                    "Notification points",
                    'standard, ostelco, monogoto, cmi, or a table such as {"3": "DOWNLOAD"}',
                    "table",
                    'standard, ostelco, monogoto or cmi, or a table of its own such as {"3": "DOWNLOAD"}.',
                    True,
                ),
                Field("protocol", "Protocol", "a version such as gsma/rsp/v2.2.2", rare=True),
                Field("padIccid", "Pad ICCIDs of 19 digits with F", "on or off", "flag", rare=True),
                Field("sendProfileType", "Send the profile type with the ICCID", "on or off", "flag", rare=True),
                Field("vendorProfileStatus", "Supports getProfileStatus", "on or off", "flag", rare=True),
                _PARALLEL,
                Field("connectSeconds", "Connect timeout", _SECONDS, "number", rare=True, unit="seconds"),
                Field(
                    "readSeconds",
                    "Response timeout",
                    f"{_SECONDS}; at most 20 with the connection",
                    "number",
                    rare=True,
                    unit="seconds",
                ),
            ),
        ),
    )
}


def document(kind: KindOfSupplier, form: Mapping[str, str], *, new: bool) -> bytes:
    """A form as the JSON of its settings. A secret that was not filled in is left out, and so is what a new supplier
    leaves to the default. What cannot be read stays text, so that it is refused with its name."""
    values: dict[str, object] = {}
    for field in kind.fields:
        text = form.get(field.name, "").strip()
        if field.form == "flag":
            values[field.name] = field.name in form
        elif text or not (new or field.secret or field.form in ("pem", "number", "table") or field.rare):
            values[field.name] = _read(field, text)
        elif field.form == "lines":
            values[field.name] = []
    return msgspec.json.encode(values)


def _read(field: Field, text: str) -> object:
    if field.form == "lines":
        return text.replace(",", " ").split()
    if field.form == "number" or (field.form == "table" and text.startswith("{")):
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError:
            return text
    return text


def texts(kind: KindOfSupplier, settings: Mapping[str, object]) -> dict[str, str]:
    """Settings, as operators may see them, as the form shows them; secrets and certificates are left out."""
    return {
        field.name: _text(settings.get(field.name)) for field in kind.fields if not field.secret and field.form != "pem"
    }


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else ""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return "\n".join(str(one) for one in value)
    if isinstance(value, dict):
        return msgspec.json.encode(value).decode()
    return "" if value is None else str(value)


def errors(kind: KindOfSupplier, faults: Mapping[str, str], form: Mapping[str, str]) -> dict[str, str]:
    """What was wrong with each field and what is accepted, in the form's words."""
    found: dict[str, str] = {}
    for field in kind.fields:
        if field.name in faults:
            given = "" if field.secret or field.form == "pem" else form.get(field.name, "").strip()
            wrong = (
                f"“{given[:60]}” is not accepted"
                if given
                else "Missing"
                if not form.get(field.name)
                else "Not accepted"
            )
            own = faults[field.name] if faults[field.name].startswith("it ") else ""
            found[field.name] = f"{wrong}: {own or 'it must be ' + field.accepts}."
    return found


def kind_title(name: str) -> str:
    """rt_upstream as "RT reseller API"."""
    return KINDS[name].title if name in KINDS else name
