"""Which settings does this process have? Read from the environment once, into one frozen object."""

import math
import os
import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, AliasChoices, BeforeValidator, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from dealer_server.db.sealing import MasterKeys
from dealer_server.rules.access import access
from dealer_server.rules.retention.retention import Kind
from dealer_server.rules.webhooks import backoff

_POSTGRES = re.compile(r"postgres(ql)?://([^/?#]*@)?(?P<hosts>[^/?#]*)([/?#].*)?", re.DOTALL)
_HOSTS = re.compile(r"((\[[0-9A-Fa-f:.]+\]|[^\[\]:,]*)(:[0-9]{1,5})?(,|$))*", re.ASCII)
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


Days = Annotated[int, BeforeValidator(_retention), AfterValidator(_in_bounds)]


class SettingsError(Exception):
    """A setting or an argument is missing or malformed; the message is one line and holds no secret."""


class CannotStart(Exception):
    """This process must not start with these settings; the message is one line for the operator."""


class Settings(BaseSettings):
    """Every setting is an environment variable `DEALER_<NAME>`; the database's is DATABASE_URL."""

    model_config = SettingsConfigDict(env_prefix="DEALER_", frozen=True, extra="ignore")

    database_url: str = Field(validation_alias=AliasChoices("DATABASE_URL", "DEALER_DATABASE_URL"))
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

    metrics: str | None = Field(
        default=None, description="HOST:PORT of the worker's /metrics and /health; empty for none"
    )

    console: str | None = Field(
        default=None,
        description="HOST:PORT where serve has the console; unset: /console on the API's port; empty: none",
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
    supplier_patience_seconds: float = Field(
        default=3_600.0,
        ge=0,
        description="how long an order waits for a package's only supplier to accept orders again",
    )
    margin_floor_basis_points: int = Field(
        default=0,
        ge=0,
        le=10_000,
        description="part of the dealer's price that must remain for a supplier's new price to be accepted",
    )
    ios_install_url: str = "https://esimsetup.apple.com/esim_qrcode_provisioning?carddata={carddata}"
    android_install_url: str = "https://esimsetup.android.com/esim_qrcode_provisioning?carddata={carddata}"
    supplier_speed: float = Field(default=1.0, gt=0, description="how many times faster the simulated supplier runs")

    @field_validator("database_url")
    @classmethod
    def _database(cls, text: str) -> str:
        return _postgres_url(text)

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

    @field_validator("metrics", "console", "supplier_events")
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
        }
        return {kind: timedelta(days=count) for kind, count in days.items() if count}

    @property
    def base_url(self) -> str:
        """The base URL for dealers."""
        scheme = "https" if self.tls_cert else "http"
        return self.public_url.rstrip("/") or f"{scheme}://{self.host}:{self.port}"


def database_url() -> str:
    """The only setting that `migrate` needs. Raises SettingsError."""
    url = os.environ.get("DATABASE_URL") or os.environ.get("DEALER_DATABASE_URL")
    if not url:
        raise SettingsError("DATABASE_URL is not set")
    try:
        return _postgres_url(url)
    except ValueError as error:
        raise SettingsError(f"DATABASE_URL: {error}") from None


def read(**given: object) -> Settings:
    """The settings of the environment; those `given` replace them. Raises SettingsError."""
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
    except ValidationError as error:
        raise SettingsError("; ".join(_line(fault) for fault in error.errors())) from None


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
