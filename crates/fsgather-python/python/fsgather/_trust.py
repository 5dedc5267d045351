"""Whether what other ranks send may be unpickled, which runs whatever code they put into it."""

from __future__ import annotations

import os
from typing import Optional

from fsgather._errors import ConfigError

__all__ = ["allows_pickle"]


def allows_pickle(rendezvous: Optional[str], is_introduced: bool) -> bool:
    """What holds for a communicator whose calls say nothing themselves.

    ``FSGATHER_PICKLE`` decides. Without it pickles are refused where strangers could have joined: at ``tcp://HOST:PORT``
    without a secret of the user's own, which anybody who knows the job and reaches the port can work out. Ranks that a channel of the program's own introduces
    (``is_introduced``) have a secret that went through it.
    """
    said = os.environ.get("FSGATHER_PICKLE", "")
    if said in ("0", "1"):
        return said == "1"
    if said:
        raise ConfigError(f"FSGATHER_PICKLE={said!r} is neither 0 nor 1; FSGATHER_PICKLE=0 refuses pickles")
    if is_introduced:
        return True
    meets_at = rendezvous or os.environ.get("FSGATHER_RENDEZVOUS", "")
    has_secret = bool(os.environ.get("FSGATHER_SECRET") or os.environ.get("FSGATHER_SECRET_FILE"))
    return has_secret or not meets_at.startswith("tcp://")
