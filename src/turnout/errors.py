"""Every error Turnout raises on purpose, and what the outside world sees of it.

    TurnoutError                 exit 1   HTTP 500   something Turnout should have handled
    ├── UserError                exit 2   HTTP 400   the input is wrong: the message says what, where, what to do
    │   ├── ConfigError                              a config file, a flag, an environment variable
    │   ├── ArtefactError                            a profile, log or table on disk
    │   ├── ModelError                               a model that cannot be loaded, or run on the inputs given
    │   └── RequestError                             a request to the gateway
    │       └── UnknownModelError         HTTP 404
    ├── CheckFailedError         exit 3   HTTP 500   the answer is no: a replay differs, nothing meets the SLO
    ├── CapabilityError          exit 4   HTTP 501   this machine or installation lacks something
    │   ├── ExtraMissingError                        an optional package (the message has the install command)
    │   ├── DeviceAbsentError                        a device that was asked for by name
    │   └── SilentFallbackError                      a runtime that put the work elsewhere than asked
    └── UnavailableError         exit 1   HTTP 503   right request, wrong moment: no replica, queue full, shutting down

Messages are for people: no class names, no tracebacks. SIGINT exits with 130 and SIGTERM with 143, as shells expect.
"""

from __future__ import annotations


class TurnoutError(Exception):
    """Root of the tree; raised itself only for states that Turnout should never reach."""

    exit_code = 1
    http_status = 500


class UserError(TurnoutError):
    """The input is wrong and the person who gave it can mend it."""

    exit_code = 2
    http_status = 400


class ConfigError(UserError):
    """A config file, flag or environment variable is wrong; the message lists every fault found."""


class ArtefactError(UserError):
    """A file that Turnout wrote or should read (profile, log, table) is missing, damaged or of another kind."""


class ModelError(UserError):
    """A model or callable cannot be loaded, or does not run on the inputs it was given."""


class RequestError(UserError):
    """A request to the gateway that no retry can mend."""


class UnknownModelError(RequestError):
    """A request names a model that this gateway does not serve."""

    http_status = 404


class CheckFailedError(TurnoutError):
    """The command ran, and its answer is no."""

    exit_code = 3


class CapabilityError(TurnoutError):
    """This machine or this installation lacks what was asked for."""

    exit_code = 4
    http_status = 501


class ExtraMissingError(CapabilityError):
    """An optional package is not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        """Name the missing `package`, the `extra` that brings it, and the `purpose` it was wanted for."""
        super().__init__(f"{purpose} needs the package {package}: in Turnout's clone, pip install '.[{extra}]'")


class DeviceAbsentError(CapabilityError):
    """A device was asked for by name and is not here."""


class SilentFallbackError(CapabilityError):
    """A runtime accepted the request for one device and placed work on another."""


class UnavailableError(TurnoutError):
    """The request was right and the moment was not; `retry_after_s` says when to come back."""

    http_status = 503

    def __init__(self, message: str, retry_after_s: float = 0.0) -> None:
        """Keep the `message` for people and `retry_after_s` for the client's back-off."""
        super().__init__(message)
        self.retry_after_s = retry_after_s
