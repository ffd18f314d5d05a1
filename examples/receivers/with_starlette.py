"""Receive webhooks with Starlette. In FastAPI the same function stands under `@app.post("/webhooks")`.

    uvicorn --app-dir examples/receivers with_starlette:app --port 9000

The environment names the AppSecret, ESIM_DEALER_APP_SECRET, and the file that keeps the events, INBOX.
"""

import logging
import os
from threading import Thread

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from esim_dealer import Event, Inbox, MalformedWebhook, WebhookError, verify

APP_SECRET = os.environ["ESIM_DEALER_APP_SECRET"]
inbox = Inbox(os.environ.get("INBOX", "webhooks.sqlite"))


async def receive(request: Request) -> Response:
    """Verify the raw bytes, store the event, answer. Handling it comes afterwards."""
    try:
        event = verify(request.headers, await request.body(), APP_SECRET)
    except WebhookError as error:
        logging.warning("webhook refused: %s", error)
        return Response(status_code=400 if isinstance(error, MalformedWebhook) else 401)
    await run_in_threadpool(inbox.receive, event)  # an error of the disk becomes a 500, and the event is sent again
    return Response(status_code=200)


def handle(event: Event) -> None:
    """Yours. Called at least once for each event; where it raises, the event comes again."""
    if event.stale and event.event_type == "DELIVERY_UPDATED":
        return  # a newer one came first, and its hints cover this one
    print(event.event_type, event.snapshot.order_no, ",".join(event.hints), flush=True)


app = Starlette(routes=[Route("/webhooks", receive, methods=["POST"])])
Thread(target=inbox.keep_processing, args=(handle,), daemon=True).start()

if __name__ == "__main__":
    import uvicorn

    uvicorn.run(app, port=int(os.environ.get("PORT", "9000")))
