"""Deliveries that wait, drained by one worker process and by other queues; latency; claims."""

from bench.cases.suite import Bench, audit
from bench.cases.webhooks import claims, contest, drain
from bench.load.receivers import Receivers
from bench.load.sink import Received

WEBHOOK_ROUNDS = 5  # they are short


def run(bench: Bench) -> None:
    """(i): deliveries that wait, drained by one worker process and by other queues; latency; claims."""
    others: contest.Contest | None = None
    dead = claims.load(bench.instance)
    with Receivers(bench.instance.folder, drain.RECEIVERS) as receivers:
        for _ in range(WEBHOOK_ROUNDS if bench.options.runs > 1 else 1):
            posts = _delivered(bench, receivers)
            others = others or contest.Contest(bench.instance, receivers, posts)
            for rival in contest.RIVALS:
                others.run(rival, bench.note)
            _claimed(bench, dead)
    bench.instance.drop(dead)


def _delivered(bench: Bench, receivers: Receivers) -> list[Received]:
    """Ours; gives what was received of the first drain."""
    count, seconds = bench.options.deliveries, bench.options.seconds
    with drain.Drain(bench.instance, receivers, count) as ours:
        reading, posts = ours.first()
        bench.note("webhooks.ours", "webhooks: ours, ordered, payment and delivery", reading)
        bench.note("webhooks.changed", "webhooks: ours, changed orders", ours.changed())
        bench.note("webhooks.latency", f"webhooks: COMMIT → first byte, {drain.RATE} changes/s", ours.latency(seconds))
        audit(bench, ours.database, "webhooks.audit", "webhooks: audit of all of it")
    with drain.Drain(bench.instance, receivers, count) as ours:
        title = f"webhooks: ours, one of {drain.RECEIVERS} receivers hangs"
        bench.note("webhooks.hanging", title, ours.hanging())
    return posts


def _claimed(bench: Bench, database: str) -> None:
    where = f"beside {claims.WAITING:,} of a dead tenant"
    for name, title, share in (
        ("probe", "breaker open", claims.PROBE),
        ("cap", "breaker closed", claims.CAP),
    ):
        reading = claims.claim(bench.instance, database, share)
        bench.note(f"webhooks.claim.{name}", f"claim {where}, {title}", reading)
    bench.note("webhooks.look", f"look who waits, {where}", claims.look(bench.instance, database))
