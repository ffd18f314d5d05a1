"""Receive webhooks with Flask.

    gunicorn --chdir examples/receivers with_flask:app --bind 127.0.0.1:9000

The environment names the AppSecret, ESIM_DEALER_APP_SECRET, and the file that keeps the events, INBOX.
"""

import os
from threading import Thread

from flask import Flask, request

from esim_dealer import Event, Inbox, MalformedWebhook, WebhookError, verify

APP_SECRET = os.environ["ESIM_DEALER_APP_SECRET"]
inbox = Inbox(os.environ.get("INBOX", "webhooks.sqlite"))
app = Flask(__name__)
app.config["MAX_CONTENT_LENGTH"] = 4 * 1024 * 1024  # an order of 500 profiles, with room


@app.post("/webhooks")
def receive() -> tuple[str, int]:
    """Verify the raw bytes, store the event, answer. Handling it comes afterwards."""
    try:
        event = verify(request.headers, request.get_data(), APP_SECRET)
    except WebhookError as error:
        app.logger.warning("webhook refused: %s", error)
        return "", 400 if isinstance(error, MalformedWebhook) else 401
    inbox.receive(event)  # an error of the disk becomes a 500, and the event is sent again
    return "", 200


def handle(event: Event) -> None:
    """Yours. Called at least once for each event; where it raises, the event comes again."""
    if event.stale and event.event_type == "DELIVERY_UPDATED":
        return  # a newer one came first, and its hints cover this one
    print(event.event_type, event.snapshot.order_no, ",".join(event.hints), flush=True)


Thread(target=inbox.keep_processing, args=(handle,), daemon=True).start()

if __name__ == "__main__":
    from werkzeug.serving import run_simple

    run_simple("127.0.0.1", int(os.environ.get("PORT", "9000")), app, threaded=True)
