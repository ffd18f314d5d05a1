"""Does a mail leave as it should? Over TLS or not at all, to one address, under one subject, whatever is in it."""

import ssl
from datetime import UTC, datetime
from email.message import EmailMessage
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from dealer_server.notices.mailer import NotSent, SmtpMailer, smtp_server
from dealer_server.notices.message import Sender, message
from dealer_server.rules.notices.texts import isolated, plain
from dealer_server.settings import Settings, SettingsError
from dealer_server.store.notices.outbox import Notice
from support.api_client import test_settings
from support.notices.smtp_server import SmtpServer, mail_server

AT = datetime(2026, 11, 20, 8, 15, 30, tzinfo=UTC)
SENDER = Sender("eSIM Dealer", "notices@esim.test", "https://dealers.test")
URL = "postgresql://nobody@127.0.0.1/none"
LOGIN = ("platform", "hush hush")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of localhost, with its key; signed by itself."""
    key, name = (
        ec.generate_private_key(ec.SECP256R1()),
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")]),
    )
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC)).not_valid_after(datetime(2099, 1, 1, tzinfo=UTC))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True).sign(key, hashes.SHA256())
    )  # fmt: skip
    file = tmp_path_factory.mktemp("mail") / "server.pem"
    pem = serialization.Encoding.PEM
    file.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()) + made.public_bytes(pem)
    )
    return file


@pytest.fixture
def tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


def settings(server: SmtpServer, **changed: object) -> Settings:
    given = {"smtp_host": "localhost", "smtp_port": server.port, "smtp_from": "notices@esim.test"}
    return test_settings(URL, **given | changed)


async def send(opened: Settings, made: EmailMessage | None = None) -> None:
    await SmtpMailer(smtp_server(opened)).send("ada@example.com", made or mail())


def mail(notice_type: str = "STOCK_LOW", user: str = "ada@example.com", **data: object) -> EmailMessage:
    usual = {"packageCode": "JP-5GB", "packageName": "Japan 5 GB", "free": 3, "below": 10}
    notice = Notice(0, 7, notice_type, usual | data, AT)
    return message(SENDER, "ada@example.com", user, [notice], [1], digest=False)


def credentials(certificate: Path) -> dict[str, object]:
    return {"smtp_user": LOGIN[0], "smtp_password": LOGIN[1], "smtp_ca": certificate}


@pytest.mark.parametrize("implicit", [False, True])
async def test_a_mail_is_sent_over_tls_with_a_password(certificate: Path, tls: ssl.SSLContext, implicit: bool):
    async with mail_server(tls, LOGIN, implicit=implicit) as server:
        await send(settings(server, smtp_tls="tls" if implicit else "starttls", **credentials(certificate)))
    [arrived] = server.mails
    assert (arrived.sender, arrived.to, arrived.user) == ("notices@esim.test", ["ada@example.com"], LOGIN[0])
    assert arrived.tls or implicit
    assert arrived.message["Subject"] == "[eSIM Dealer] Low stock: 3 left of JP-5GB"
    assert arrived.message["Auto-Submitted"] == "auto-generated"
    assert "https://dealers.test/console/packages/JP-5GB/stock" in arrived.plain and "Japan 5 GB" in arrived.html


async def test_nothing_is_sent_to_a_server_that_offers_no_tls(certificate: Path):
    async with mail_server(login=LOGIN) as server:
        with pytest.raises(NotSent, match="does not offer TLS") as why:
            await send(settings(server, **credentials(certificate)))
    assert not why.value.final and server.mails == [] and not {"AUTH", "MAIL"} & {*server.commands}


async def test_nothing_is_sent_to_a_server_whose_certificate_is_not_known(tls: ssl.SSLContext):
    async with mail_server(tls, LOGIN) as server:
        with pytest.raises(NotSent) as why:
            await send(settings(server, smtp_user=LOGIN[0], smtp_password=LOGIN[1]))
    assert not why.value.final and not {"AUTH", "MAIL"} & {*server.commands}


async def test_a_refused_password_is_tried_again_and_stands_in_no_message(certificate: Path, tls: ssl.SSLContext):
    async with mail_server(tls, LOGIN) as server:
        with pytest.raises(NotSent, match="refuses user or password") as why:
            await send(settings(server, **credentials(certificate) | {"smtp_password": "another secret"}))
    assert not why.value.final and "secret" not in str(why.value) and server.mails == []
    assert "another secret" not in repr(smtp_server(settings(server, smtp_user="u", smtp_password="another secret")))


async def test_a_server_that_is_away_is_tried_again():
    async with mail_server() as server:
        pass
    with pytest.raises(NotSent) as why:
        await send(settings(server, smtp_tls="none"))
    assert not why.value.final


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"smtp_host": "mail.test"}, "DEALER_SMTP_FROM: not set, but DEALER_SMTP_HOST is"),
        ({"smtp_host": "mail.test:25", "smtp_from": "a@example.com"}, "DEALER_SMTP_HOST: a host such as"),
        ({"smtp_from": "Ada <a@example.com>"}, "DEALER_SMTP_FROM: one plain address"),
        ({"smtp_user": "u"}, "DEALER_SMTP_PASSWORD: DEALER_SMTP_USER and DEALER_SMTP_PASSWORD must be set together"),
        ({"smtp_user": "u", "smtp_password": "pw-1", "smtp_tls": "none"}, "DEALER_SMTP_PASSWORD: DEALER_SMTP_TLS is"),
        ({"smtp_port": 0}, "DEALER_SMTP_PORT"),
        ({"smtp_tls": "ssl"}, "DEALER_SMTP_TLS"),
        ({"smtp_ca": "/nowhere.pem"}, "DEALER_SMTP_CA: no such file"),
        ({"platform_name": "two\nlines"}, "DEALER_PLATFORM_NAME: one line"),
        ({"mailbox": True, "environment": "production"}, "DEALER_MAILBOX: mails are not kept in production"),
        ({"digest_hour": 24}, "DEALER_DIGEST_HOUR"),
        ({"notice_days": 3}, "DEALER_NOTICE_DAYS: 30 to"),
    ],
)
def test_settings_that_do_not_fit_are_refused_in_words(given: dict[str, object], said: str):
    with pytest.raises(SettingsError) as why:
        test_settings(URL, **given)
    assert said in str(why.value) and "pw-1" not in str(why.value)


NASTY = "Evil\r\nBcc: victim@example.com\r\n\r\n<script>alert(1)</script>"


async def test_no_header_and_no_markup_gets_in_by_a_name():
    async with mail_server() as server:
        data = {"packageCode": NASTY, "packageName": f'"{NASTY}"'}
        made = message(
            Sender("Plat\r\nBcc: x@example.com", "notices@esim.test", "https://dealers.test"), "ada@example.com", NASTY,
            [Notice(0, 7, "STOCK_LOW", {"free": 1, "below": 2} | data, AT)], [1], digest=False,
        )  # fmt: skip
        await send(settings(server, smtp_tls="none"), made)
    [arrived] = server.mails
    assert arrived.to == ["ada@example.com"] and arrived.message["Bcc"] is None and arrived.message["Cc"] is None
    assert "Bcc: victim@example.com" in arrived.message["Subject"], "a part of the one subject line"
    assert "<script" not in arrived.html and "&lt;script&gt;" in arrived.html


@pytest.mark.parametrize("name", ["يابان ٥ جيجابايت", "יפן 5GB", "日本 5GB", "Zoë’s \u202egnp.exe"])
async def test_names_of_any_script_arrive_and_turn_nothing_around_them(name: str):
    async with mail_server() as server:
        await send(settings(server, smtp_tls="none"), mail(packageName=name, packageCode=f"{name} code"))
    [arrived] = server.mails
    shown = name.replace("\u202e", "")
    assert shown in arrived.plain and f"<bdi>{shown} (" in arrived.html and "\u202e" not in arrived.html + arrived.plain
    assert shown in arrived.message["Subject"]
    assert all(len(line) < 999 and line.isascii() for line in arrived.raw.split(b"\r\n"))


def test_a_text_of_others_is_one_line_and_isolated_where_it_turns():
    assert plain(" a\tb\r\nc\u2028d\x00e ") == "a b c d e"
    assert len(plain("x" * 1000)) == 300
    assert isolated("Japan") == "Japan" and isolated("יפן") == "\u2068יפן\u2069"
    assert isolated("\u2069\u202eיפן") == "\u2068יפן\u2069"


def test_the_same_notices_make_the_same_message_and_others_another():
    assert mail().as_bytes().split(b"boundary")[0] == mail().as_bytes().split(b"boundary")[0]
    [one, other] = [
        message(SENDER, "a@example.com", "a", [Notice(0, 7, "X", {}, AT)], ids, digest=True)["Message-ID"]
        for ids in ([1], [2])
    ]
    assert one != other and one.endswith("@esim.test>")
