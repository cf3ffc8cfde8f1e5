"""Settings of the service, from flags and from the environment."""

import ipaddress
import os
from typing import Any

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from domainadaptor.catalog import DEFAULT_METHOD
from domainadaptor.errors import BadOption

PREFIX = "DOMAINADAPTOR_SERVE_"
_MEBIBYTE = 1024 * 1024


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class ServeSettings(BaseSettings):
    """What is served, where, and the limits; all but the network are also read from `DOMAINADAPTOR_SERVE_<NAME>`."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True)

    network: str
    weights: str | None = None
    classes: str | None = None
    size: int | None = None
    root: str | None = None
    method: str = DEFAULT_METHOD
    options: dict[str, str] = {}
    stream_method: str | None = None
    device: str = "cpu"

    host: str = "127.0.0.1"
    port: int = Field(8000, ge=0, le=65535)
    token: SecretStr | None = None
    no_token: bool = False
    workers: int = Field(default_factory=_cores, ge=1)
    threads: int = Field(1, ge=1)

    max_bytes: int = Field(32 * _MEBIBYTE, ge=1)  # of a request's body
    max_images: int = Field(128, ge=1)  # per request
    max_pixels: int = Field(50_000_000, ge=1)  # of all images of a request together, before resizing
    max_buffer: int = Field(256 * _MEBIBYTE, ge=1)  # of all bodies that are being received or wait
    max_connections: int = Field(512, ge=1)
    max_streams: int = Field(64, ge=1)
    max_models: int = Field(16, ge=1)  # calibrated ones
    queue: int = Field(16, ge=1)  # requests that wait for a worker
    time_limit: float = Field(60, gt=0)  # seconds that a worker may spend on a request
    client_timeout: float = Field(20, gt=0)  # seconds that a client may take to send a request, or to read the answer
    stream_timeout: float = Field(600, gt=0)  # seconds after which an unused stream ends
    model_timeout: float = Field(3600, gt=0)  # seconds after which an unused calibrated model ends

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        try:
            return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def check_token(self) -> None:
        """Raise BadOption if other machines can connect without a token, unless --no-token was passed."""
        if self.token is not None and not self.token.get_secret_value():
            raise BadOption(f"{PREFIX}TOKEN is empty. Set a secret, or unset it")
        if self.token is None and not self.no_token and not self.is_loopback:
            raise BadOption(
                f"Other machines can connect to --host {self.host}. Set {PREFIX}TOKEN to a secret that clients send as "
                "'Authorization: Bearer <token>', or pass --no-token if everybody may use the service"
            )


def read_settings(**flags: Any) -> ServeSettings:
    """Return the settings; flags that are None are read from the environment, or have their defaults."""
    known = {PREFIX + name.upper() for name in ServeSettings.model_fields}
    if unknown := sorted(name for name in os.environ if name.startswith(PREFIX) and name not in known):
        raise BadOption(
            f"Unknown variables in the environment: {', '.join(unknown)}. Known: {', '.join(sorted(known))}"
        )
    try:
        settings = ServeSettings(**{name: value for name, value in flags.items() if value is not None})
    except ValidationError as error:
        wrong = (f"{'.'.join(map(str, line['loc']))}: {line['msg']}" for line in error.errors(include_input=False))
        raise BadOption(f"Invalid settings of the service: {'; '.join(wrong)}") from None
    settings.check_token()
    return settings
