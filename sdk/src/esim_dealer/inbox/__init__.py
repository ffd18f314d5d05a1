"""Which events has a receiver stored, which are still to be handled, and what is the newest state of each order?

    inbox = Inbox("webhooks.sqlite")
    inbox.receive(verify(headers, raw_body, app_secret))  # stored durably: answer 200 now
    inbox.process(handle)                                 # afterwards, in a thread or process of its own

Specification 6.5 rules 2 to 4: each event once, no older snapshot over a newer one, work after the answer.
"""

from esim_dealer.inbox.inbox import Handle, Inbox

__all__ = ["Handle", "Inbox"]
