"""A stand-in for launchd: it reads property lists, really runs what they say, and answers a `launchctl` program.

Taken from launchd's manual and from what people measured of it: a bare environment, 256 files unless raised, restarts
by KeepAlive no sooner than ThrottleInterval, SIGTERM then SIGKILL after ExitTimeOut, a bootout that returns while the
process still ends, error 5 for a bootstrap in that window, a database of disabled jobs. What it does not show:
launchd's real timing, users, sessions, ProcessType.
"""

from tests.support.launchd.daemon import Launchd
from tests.support.launchd.job import Event

__all__ = ["Event", "Launchd"]
