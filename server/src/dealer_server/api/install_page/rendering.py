"""How does the page become HTML? One file with its style and script in it; nothing is loaded from anywhere."""

import base64
import functools
import hashlib
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from dealer_server.api.install_page.texts import Texts, texts
from dealer_server.operations.profiles.show_install_page import InstallPage
from dealer_server.rules.brand import brand as rules
from dealer_server.rules.brand import colour
from dealer_server.rules.brand.brand import Brand
from dealer_server.rules.esim import qr
from dealer_server.rules.install.device import MANUFACTURERS, Device
from dealer_server.rules.install.languages import LANGUAGES, Language

HERE = Path(__file__).parent


class Rendered(NamedTuple):
    """`policy`: the Content-Security-Policy that allows what is in it and nothing else."""

    html: str
    policy: str


def page(of: InstallPage, language: Language, device: Device) -> Rendered:
    text = texts(language)
    return _render(
        "page.html",
        text,
        of.brand,
        script=_script(),
        page=of,
        device=device,
        phones=(*MANUFACTURERS, "ios") if device.platform == "android" else ("ios", *MANUFACTURERS),
        phone=device.manufacturer if device.platform == "android" else "ios",
        chips=_chips(of, text),
        volume=_volume(of, text),
        qr=Markup(qr.inline_svg(of.codes.code.text, text("qr_title"))) if of.codes else "",  # noqa: S704 (we drew it)
        dialled=rules.dialled(of.brand.support_phone),
        support_host=urlsplit(of.brand.support_url).hostname or "",
        shop_host=urlsplit(of.brand.sales_url).hostname or "",
    )


def notice(about: str, language: Language) -> Rendered:
    """`about`: "unknown", an address that names no eSIM, or "busy"."""
    return _render("notice.html", texts(language), Brand(), script=Markup(), about=about)


def _render(template: str, text: Texts, brand: Brand, **fields: Any) -> Rendered:
    style = _style(brand.colour or colour.NEUTRAL)
    names = [(language, texts(language)("language")) for language in LANGUAGES]
    html = (
        _environment()
        .get_template(template)
        .render(text=text, brand=brand, languages=names, style=style, logo=_logo(brand), **fields)
    )
    return Rendered(html, _policy(style, fields["script"]))


def _chips(of: InstallPage, text: Texts) -> list[str]:
    days = text.days(of.period) if of.period else ""
    return [chip for chip in (of.place, _volume(of, text), days) if chip]


def _volume(of: InstallPage, text: Texts) -> str:
    """As it was sold; "" where that is not known any more."""
    if not of.name:
        return ""
    if of.volume_bytes is None:
        return text("unlimited")
    volume = text.volume(of.volume_bytes)
    return text("per_day", volume=volume) if of.by_day else volume


def _logo(brand: Brand) -> str:
    """As an address that holds the picture."""
    if brand.logo is None:
        return ""
    return f"data:{brand.logo.media_type};base64,{base64.b64encode(brand.logo.content).decode()}"


@functools.lru_cache(maxsize=256)
def _style(fill: str) -> Markup:
    shades = colour.shades(fill)
    names = zip(("fill", "on-fill", "by-day", "by-night"), shades, strict=True)
    own = ";".join(f"--{name}:{shade}" for name, shade in names)
    return Markup(f":root{{{own}}}\n" + (HERE / "page.css").read_text("utf-8"))  # noqa: S704 (our own file)


@functools.cache
def _script() -> Markup:
    return Markup((HERE / "page.js").read_text("utf-8"))  # noqa: S704 (our own file)


def _policy(style: str, script: str) -> str:
    scripts = f" script-src '{_digest(script)}';" if script else ""
    return (
        f"default-src 'none'; style-src '{_digest(style)}';{scripts} img-src data:; form-action 'none';"
        " frame-ancestors 'none'; base-uri 'none'"
    )


@functools.lru_cache(maxsize=256)
def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@functools.cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
