"""What the chapters share. Importing this package quiets the import-time noise of the libraries below it.

It has to run before `torch`, `torchao` and `executorch` are imported, which is why first-party imports come first in
every file. It imports nothing but the standard library. `common.env.quiet()` quiets what appears later, while exporting
and lowering.

Nothing is silenced wholesale: every entry names one message, so that anything new still reaches the reader (and fails
the build). The warning that tells of a forgotten calibration ("must run observer before calling calculate_qparams") is
deliberately not among them.
"""

import logging
import re
import warnings
from typing import NamedTuple


class LoggedNoise(NamedTuple):
    """One log message that is dropped."""

    logger: str
    message: str  # regular expression, matched from the start
    package: str  # where it comes from, with the version it was seen in
    reason: str


class WarnedNoise(NamedTuple):
    """One warning that is dropped.

    `category` is a class of the standard library, so that nothing has to be imported to name it.
    """

    category: type[Warning]
    message: str  # regular expression, matched from the start
    package: str
    reason: str


LOGGED_AT_IMPORT = (
    LoggedNoise(
        "torchao",
        r"Failed to load \S*_C_(mxfp8|cutlass_90a)\.",
        "torchao 0.18.0",
        "the CPU wheel carries two CUDA extensions that no CPU can load and nothing here uses",
    ),
    LoggedNoise(
        "torch.utils._pytree",
        r"<enum 'KernelPreference'> is an Enum subclass",
        "torchao 0.18.0 on torch 2.13.0",
        "torchao registers an enum the old way; a note to torchao's authors",
    ),
)

WARNED_AT_IMPORT = (
    WarnedNoise(
        DeprecationWarning,
        r"This API is experimental and subject to change without notice\.",
        "executorch 1.5.1",
        "ExperimentalWarning of the Python runtime bindings; the course pins the version",
    ),
)


class _Drop(logging.Filter):
    """Drops the records of one logger whose message matches; everything else the logger says passes."""

    def __init__(self, message: str) -> None:
        super().__init__()
        self.message = re.compile(message)

    def filter(self, record: logging.LogRecord) -> bool:
        return self.message.match(record.getMessage()) is None


def quiet_logger(noise: LoggedNoise) -> None:
    """Drop one log message. Doing it twice changes nothing."""
    logger = logging.getLogger(noise.logger)
    if not any(isinstance(f, _Drop) and f.message.pattern == noise.message for f in logger.filters):
        logger.addFilter(_Drop(noise.message))


def quiet_warning(noise: WarnedNoise) -> None:
    """Drop one warning. Doing it twice changes nothing."""
    warnings.filterwarnings("ignore", message=noise.message, category=noise.category)


for _logged in LOGGED_AT_IMPORT:
    quiet_logger(_logged)
for _warned in WARNED_AT_IMPORT:
    quiet_warning(_warned)
