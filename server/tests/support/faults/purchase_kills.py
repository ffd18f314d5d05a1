"""The points around a call to a supplier at which a worker is killed."""

from dealer_server.failpoints import Failpoint

POINTS = [
    Failpoint("purchase.lines_claimed"),
    Failpoint("purchase.claimed"),
    Failpoint("purchase.sending"),
    Failpoint("purchase.sending", 2, 0.003),
    Failpoint("purchase.answered"),
    Failpoint("purchase.answered", 3, 0.0005),
    Failpoint("purchase.written"),
    Failpoint("purchase.written", 1, 0.0003),
    Failpoint("purchase.recorded"),
]
