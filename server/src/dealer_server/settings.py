"""Which settings does this process have? Read from the environment once, into one frozen object."""

import math
import os
import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from dealer_server import environment as variables
from dealer_server.db.sealing import MasterKeys
from dealer_server.rules.access import access
from dealer_server.rules.access.two_factor import TwoFactor
from dealer_server.rules.notices.notice import is_mail_address
from dealer_server.rules.retention.retention import Kind
from dealer_server.rules.webhooks import backoff

_POSTGRES = re.compile(r"postgres(ql)?://([^/?#]*@)?(?P<hosts>[^/?#]*)([/?#].*)?", re.DOTALL)
_HOSTS = re.compile(r"((\[[0-9A-Fa-f:.]+\]|[^\[\]:,]*)(:[0-9]{1,5})?(,|$))*", re.ASCII)
_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}|[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*", re.ASCII)
_VALKEY_SCHEMES = ("valkey", "valkeys", "redis", "rediss", "unix")


SHORTEST_RETENTION_DAYS, LONGEST_RETENTION_DAYS = 30, 36_500


def _retention(given: object) -> object:
    """Empty: for ever."""
    return 0 if given == "" else given


def _in_bounds(days: int) -> int:
    if days != 0 and not SHORTEST_RETENTION_DAYS <= days <= LONGEST_RETENTION_DAYS:
        raise ValueError(
            f"{SHORTEST_RETENTION_DAYS} to {LONGEST_RETENTION_DAYS} days, or 0 for ever: dealers are promised what"
            f" was attempted in the last {SHORTEST_RETENTION_DAYS} days"
        )
    return days


def _one_line(text: str) -> str:
    if not text.isprintable():
        raise ValueError("one line of printable characters is expected")
    return text


Days = Annotated[int, BeforeValidator(_retention), AfterValidator(_in_bounds)]


class SettingsError(Exception):
    """A setting or an argument is missing or malformed; the message is one line and holds no secret."""


class CannotStart(Exception):
    """This process must not start with these settings; the message is one line for the operator."""


class Settings(BaseSettings):
    """Every setting is an environment variable `DEALER_<NAME>`; the database's is DATABASE_URL. Each of SECRETS may
    also stand in a file, which `…_FILE` names."""

    model_config = SettingsConfigDict(env_prefix="DEALER_", frozen=True, extra="ignore")

    database_url: str = Field(validation_alias=AliasChoices("DATABASE_URL", "DEALER_DATABASE_URL"))
    read_database_url: str = Field(
        default="", description="a replica that lists, reports and exports are read from; empty: the primary"
    )
    read_lag_seconds: float = Field(
        default=5.0, gt=0, description="how old the replica may be for a page of the console"
    )
    database_wait_seconds: float = Field(
        default=60.0, ge=0, description="how long serve and work wait for a database that is still starting"
    )
    environment: Literal["production", "test"] = "production"
    sealing_keys: SecretStr = Field(description="id:base64 of 32 bytes, comma separated, newest first")

    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65535)
    public_url: str = Field(default="", description="the base URL for dealers; QR codes are served there")
    tls_cert: Path | None = None
    tls_key: Path | None = None
    trusted_proxies: str = Field(default="", description="addresses or networks, comma separated")
    valkey_url: str = Field(default="", description="Valkey that several serve processes share request ids and QPS in")
    processes: int = Field(default=1, ge=1, le=256, description="how many processes serve or work starts here")
    port_per_process: bool = Field(default=False, description="each process of serve has a port: PORT, PORT + 1, ...")
    instances: int = Field(default=1, ge=1, description="how many serve share a tenant's QPS while Valkey is away")

    traces: float = Field(
        default=0.0, ge=0, le=1, description="the share of orders and calls whose traces are exported; 0: none"
    )
    sentry_dsn: SecretStr = Field(default=SecretStr(""), description="where errors are reported; empty: nowhere")

    metrics: str | None = Field(
        default=None, description="HOST:PORT of the worker's /metrics and /health; empty for none"
    )
    serve_metrics: str | None = Field(default=None, description="HOST:PORT of serve's /metrics; empty for none")

    console: str | None = Field(
        default=None,
        description="HOST:PORT where serve has the console; unset: /console on the API's port; empty: none",
    )

    two_factor: TwoFactor = Field(
        default="optional", description="who must have one-time codes to use the console: nobody, operators, everybody"
    )

    console_seconds: float = Field(default=10.0, gt=0, description="seconds that one query of a console page may take")

    list_seconds: float = Field(default=5.0, gt=0, description="seconds that one query of a dealer's list may take")

    supplier_events: str = Field(
        default="", description="HOST:PORT where the worker receives events of suppliers; empty for none"
    )
    supplier_events_cert: Path | None = None
    supplier_events_key: Path | None = None
    supplier_events_ca: Path | None = Field(default=None, description="CA of the certificates of suppliers")

    header_seconds: float = Field(default=5.0, gt=0)
    body_seconds: float = Field(default=10.0, gt=0)
    idle_seconds: float = Field(default=75.0, gt=0)
    stranger_idle_seconds: float = Field(
        default=5.0, gt=0, description="the same, on a connection without an authenticated call"
    )
    drain_seconds: float = Field(
        default=0.0, ge=0, le=300, description="how long a serve that is told to stop still takes calls, not ready"
    )
    connections: int = Field(default=10_000, ge=1, description="open connections of one serve process")
    connections_per_address: int = Field(
        default=1_000, ge=1, description="from one IPv4 address or IPv6 /64; trusted proxies are exempt"
    )
    failed_authentications_per_second: int = Field(default=50, ge=1)
    failed_authentications_burst: int = Field(default=200, ge=1)

    webhook_allow_loopback: bool = Field(
        default=False, description="allow webhooks to loopback addresses; never in production"
    )
    webhook_schedule: str = Field(default="", description="seconds before each attempt, comma separated")
    usage_event_seconds: float = Field(
        default=900.0,
        ge=0,
        le=86_400,
        description="least time between events of an order that report usage alone; 0: at once",
    )
    refund_failed: bool = Field(default=True, description="refund profiles that finally failed automatically")
    webhook_attempt_days: Days = Field(default=30, description="how long attempts of webhooks are kept")
    webhook_delivery_days: Days = Field(
        default=90, description="how long a webhook is kept that was delivered or given up"
    )
    supplier_log_days: Days = Field(default=30, description="how long calls to suppliers and their messages are kept")
    sms_days: Days = Field(default=30, description="how long the texts of SMS are kept")
    notice_days: Days = Field(default=90, description="how long notices are kept")
    served_call_days: Days = Field(default=30, description="how long the sample of dealers' successful calls is kept")
    buyer_mail_days: Days = Field(default=90, description="how long it is kept whom an install page was mailed to")

    platform_name: Annotated[str, AfterValidator(_one_line)] = Field(
        default="eSIM Dealer", min_length=1, max_length=60, description="the name that mails bear"
    )
    topup_instructions: str = Field(
        default="", max_length=2_000, description="how dealers pay for top-ups, such as bank details; \\n begins a line"
    )
    smtp_host: str = Field(default="", description="the server that sends mails; empty: none are sent")
    smtp_port: int | None = Field(default=None, ge=1, le=65535, description="unset: 587, 465 for tls, 25 for none")
    smtp_tls: Literal["starttls", "tls", "none"] = "starttls"
    smtp_ca: Path | None = Field(default=None, description="CA of the mail server's certificate; unset: those known")
    smtp_user: str = ""
    smtp_password: SecretStr = Field(default=SecretStr(""), validate_default=True)
    smtp_from: str = Field(default="", validate_default=True, description="the sender's address of mails")
    mailbox: bool = Field(
        default=False, validate_default=True, description="show mails at /console/mails instead of sending them"
    )
    stock_low: int = Field(default=10, ge=0, description="operators are told of stock below this; 0: never")
    queue_hours: float = Field(
        default=24.0, ge=0, description="operators are told of refunds and top-ups that wait for longer; 0: never"
    )
    digest_hour: int = Field(default=7, ge=0, le=23, description="the hour, UTC, at which daily mails are sent")
    supplier_patience_seconds: float = Field(
        default=3_600.0,
        ge=0,
        description="how long an order waits for a package's only supplier to accept orders again",
    )
    margin_floor_basis_points: int | None = Field(
        default=None,
        ge=0,
        le=10_000,
        description="part of the dealer's price that must remain where an eSIM is bought from a supplier; unset: none,"
        " but a supplier's new price is accepted only up to the dealer's",
    )
    ios_install_url: str = "https://esimsetup.apple.com/esim_qrcode_provisioning?carddata={carddata}"
    android_install_url: str = "https://esimsetup.android.com/esim_qrcode_provisioning?carddata={carddata}"
    supplier_speed: float = Field(default=1.0, gt=0, description="how many times faster the simulated supplier runs")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        *_others: PydanticBaseSettingsSource,
        **_named: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """What is given, then the environment. Looking for files too takes as long as both."""
        return init_settings, env_settings

    @field_validator("database_url")
    @classmethod
    def _database(cls, text: str) -> str:
        return _postgres_url(text)

    @field_validator("read_database_url")
    @classmethod
    def _read_database(cls, text: str) -> str:
        return _postgres_url(text) if text else ""

    @field_validator("valkey_url")
    @classmethod
    def _valkey(cls, text: str) -> str:
        try:
            parts = urlsplit(text)
            known = not text or (parts.scheme in _VALKEY_SCHEMES and (parts.port or True))
        except ValueError:
            known = False
        if not known:
            raise ValueError("an address such as valkey://host:6379/0 is expected")
        return text

    @field_validator("metrics", "serve_metrics", "console", "supplier_events")
    @classmethod
    def _address(cls, text: str | None) -> str | None:
        host, _, port = (text or "").rpartition(":")
        if text and not (host and port.isascii() and port.isdigit() and int(port) < 65_536):
            raise ValueError("HOST:PORT such as 127.0.0.1:9464 is expected")
        return text

    @field_validator("trusted_proxies")
    @classmethod
    def _networks(cls, text: str) -> str:
        access.networks([part for part in text.split(",") if part.strip()])
        return text

    @field_validator("sealing_keys")
    @classmethod
    def _keys(cls, text: SecretStr) -> SecretStr:
        MasterKeys.parse(text.get_secret_value())
        return text

    @field_validator("smtp_password")
    @classmethod
    def _smtp_password(cls, text: SecretStr, info: ValidationInfo) -> SecretStr:
        """The server is known and the password would cross the network in the clear, or one of the two is missing."""
        if bool(text.get_secret_value()) != bool(info.data.get("smtp_user")):
            raise ValueError("DEALER_SMTP_USER and DEALER_SMTP_PASSWORD must be set together")
        if text.get_secret_value() and info.data.get("smtp_tls") == "none":
            raise ValueError("DEALER_SMTP_TLS is none: a password is sent over starttls or tls alone")
        return text

    @field_validator("smtp_from")
    @classmethod
    def _smtp_from(cls, text: str, info: ValidationInfo) -> str:
        if not text and info.data.get("smtp_host"):
            raise ValueError("not set, but DEALER_SMTP_HOST is: mails need a sender such as notices@example.com")
        if text and not is_mail_address(text):
            raise ValueError("one plain address such as notices@example.com is expected")
        return text

    @field_validator("smtp_host")
    @classmethod
    def _smtp_host(cls, text: str) -> str:
        if text and not _HOST.fullmatch(text):
            raise ValueError("a host such as mail.example.com is expected; its port is DEALER_SMTP_PORT")
        return text

    @field_validator("smtp_ca")
    @classmethod
    def _smtp_ca(cls, path: Path | None) -> Path | None:
        if path is not None and not path.is_file():
            raise ValueError("no such file")
        return path

    @field_validator("mailbox")
    @classmethod
    def _mailbox(cls, on: bool, info: ValidationInfo) -> bool:
        if on and info.data.get("environment") == "production":
            raise ValueError("mails are not kept in production: set DEALER_SMTP_HOST to send them")
        return on

    @field_validator("webhook_schedule")
    @classmethod
    def _schedule(cls, text: str) -> str:
        _seconds(text)
        return text

    @property
    def master_keys(self) -> MasterKeys:
        return MasterKeys.parse(self.sealing_keys.get_secret_value())

    @property
    def proxies(self) -> tuple[access.Network, ...]:
        return access.networks([part for part in self.trusted_proxies.split(",") if part.strip()])

    @property
    def schedule(self) -> tuple[float, ...]:
        """The seconds before each attempt of a webhook."""
        return _seconds(self.webhook_schedule) or backoff.SCHEDULE_SECONDS

    @property
    def usage_interval(self) -> timedelta:
        """The least time between events of an order that report usage alone."""
        return timedelta(seconds=self.usage_event_seconds)

    @property
    def retention(self) -> dict[Kind, timedelta]:
        """How long each kind of row is kept; what is not there is kept for ever."""
        days: dict[Kind, int] = {
            "webhook_attempt": self.webhook_attempt_days,
            "webhook_delivery": self.webhook_delivery_days,
            "supplier_call": self.supplier_log_days,
            "supplier_event": self.supplier_log_days,
            "sms": self.sms_days,
            "notice": self.notice_days,
            "served_call": self.served_call_days,
            "buyer_mail": self.buyer_mail_days,
        }
        return {kind: timedelta(days=count) for kind, count in days.items() if count}

    @property
    def mails(self) -> Literal["sent", "kept", "none"]:
        """What becomes of mails: sent by SMTP, kept for /console/mails, or none are made."""
        return "sent" if self.smtp_host else "kept" if self.mailbox else "none"

    @property
    def base_url(self) -> str:
        """The base URL for dealers."""
        scheme = "https" if self.tls_cert else "http"
        return self.public_url.rstrip("/") or f"{scheme}://{self.host}:{self.port}"


SECRETS = {
    "DATABASE_URL": "DATABASE_URL",
    "DEALER_DATABASE_URL": "DATABASE_URL",
    "DEALER_READ_DATABASE_URL": "read_database_url",
    "DEALER_SEALING_KEYS": "sealing_keys",
    "DEALER_SENTRY_DSN": "sentry_dsn",
    "DEALER_SMTP_PASSWORD": "smtp_password",
    "DEALER_VALKEY_URL": "valkey_url",
}
"""The variables that hold one, and by which name Settings takes it."""


def database_url() -> str:
    """The only setting that `migrate` needs. Raises SettingsError."""
    url = _secrets().get("DATABASE_URL") or os.environ.get("DATABASE_URL") or os.environ.get("DEALER_DATABASE_URL")
    if not url:
        raise SettingsError("DATABASE_URL is not set")
    try:
        return _postgres_url(url)
    except ValueError as error:
        raise SettingsError(f"DATABASE_URL: {error}") from None


def read(**given: object) -> Settings:
    """The settings of the environment; those `given` replace them. Raises SettingsError."""
    replaced = {name: value for name, value in given.items() if value is not None}
    try:
        return Settings(**(_secrets() | replaced))  # type: ignore[arg-type]
    except ValidationError as error:
        raise SettingsError("; ".join(_line(fault) for fault in error.errors())) from None


def _secrets() -> dict[str, str]:
    """Those that stand in files. Raises SettingsError, also for a variable that is no setting."""
    known = {f"{variables.PREFIX}{name.upper()}" for name in Settings.model_fields}
    try:
        variables.refuse_unknown(os.environ, known, SECRETS)
        found = [(name, variables.secret(os.environ, variable)) for variable, name in SECRETS.items()]
    except variables.BadEnvironment as error:
        raise SettingsError(str(error)) from None
    return {name: text for name, text in found if text is not None}


def _postgres_url(text: str) -> str:
    address = _POSTGRES.fullmatch(text)
    if address is None or _HOSTS.fullmatch(address["hosts"]) is None:
        raise ValueError("an address such as postgresql://user:password@host:5432/database is expected")
    return text


def _seconds(text: str) -> tuple[float, ...]:
    try:
        found = tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        found = (math.nan,)
    most = len(backoff.SCHEDULE_SECONDS)
    if len(found) > most or not all(0 <= seconds < math.inf for seconds in found):
        raise ValueError(f"at most {most} numbers of seconds, comma separated, such as 0,5,30")
    return found


def _line(fault: object) -> str:
    """One fault in words, without the value, which may be a secret."""
    assert isinstance(fault, dict)
    field = str(fault["loc"][0]).upper() if fault["loc"] else "settings"
    name = field if field in ("DATABASE_URL", "") or field.startswith("DEALER_") else f"DEALER_{field}"
    return (
        f"{name} is not set" if fault["type"] == "missing" else f"{name}: {fault['msg'].removeprefix('Value error, ')}"
    )
