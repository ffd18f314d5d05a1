"""What may a dealer say of itself on its install pages? Name, colour, logo, and where its customers find help."""

import re
import unicodedata
from urllib.parse import urlsplit

import msgspec

from dealer_server.rules.brand import colour
from dealer_server.rules.brand.logo import Logo

MAX_NAME, MAX_EMAIL, MAX_URL = 60, 254, 512
_EMAIL = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.)+[A-Za-z]{2,63}")
_PHONE = re.compile(r"\+?[0-9][0-9 ().-]{3,28}[0-9]")
_HOST = re.compile(r"(?:[A-Za-z0-9-]{1,63}\.)+[A-Za-z0-9-]{2,63}")
_JOINERS = "\u200c\u200d"  # letters of Persian and Indian scripts, and emoji, need them


class Brand(msgspec.Struct, frozen=True, kw_only=True):
    """ "" is not set. colour: #rrggbb. sales_url: where it sells; support_url: where it helps."""

    name: str = ""
    colour: str = ""
    support_email: str = ""
    support_phone: str = ""
    support_url: str = ""
    sales_url: str = ""
    logo: Logo | None = None

    @property
    def has_support(self) -> bool:
        return bool(self.support_email or self.support_phone or self.support_url)


def parse_name(text: str) -> str:
    """Raises ValueError, as all of these do."""
    name = " ".join(text.split())
    if len(name) > MAX_NAME:
        raise ValueError(f"has {len(name)} characters; accepted: at most {MAX_NAME}")
    if any(unicodedata.category(sign)[0] == "C" and sign not in _JOINERS for sign in name):
        raise ValueError("has a control character; accepted: letters, digits and signs")
    return name


def parse_colour(text: str) -> str:
    return colour.parse(text) if text.strip() else ""


def parse_email(text: str) -> str:
    address = text.strip()
    if address and (len(address) > MAX_EMAIL or not _EMAIL.fullmatch(address)):
        raise ValueError("must be an email address such as help@example.com")
    return address


def parse_phone(text: str) -> str:
    number = " ".join(text.split())
    if number and not _PHONE.fullmatch(number):
        raise ValueError("must be a telephone number such as +44 20 7946 0000")
    return number


def parse_url(text: str) -> str:
    """Of a shop, a help page or a chat."""
    url = text.strip()
    if not url:
        return ""
    if len(url) > MAX_URL or not (url.isascii() and url.isprintable()) or re.search(r"[\s\"<>\\^`{|}]", url):
        raise ValueError(f"must be an https address of at most {MAX_URL} characters, without blanks")
    try:
        parts = urlsplit(url)
        host, has_user = parts.hostname or "", parts.username is not None
    except ValueError:
        host, has_user, parts = "", False, None
    if parts is None or parts.scheme != "https" or has_user or not _HOST.fullmatch(host):
        raise ValueError("must be an https address such as https://example.com")
    return url


def dialled(phone: str) -> str:
    """A telephone number as a link takes it."""
    return re.sub(r"[^0-9+]", "", phone)
