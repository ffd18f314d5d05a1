"""Receive webhooks with Django. In a project of yours: the view, its URL, and the thread in an AppConfig's ready().

    gunicorn --chdir examples/receivers with_django:application --bind 127.0.0.1:9000

The environment names the AppSecret, ESIM_DEALER_APP_SECRET, and the file that keeps the events, INBOX.
"""

import logging
import os
import secrets
from threading import Thread

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from esim_dealer import Event, Inbox, MalformedWebhook, WebhookError, verify

APP_SECRET = os.environ["ESIM_DEALER_APP_SECRET"]
inbox = Inbox(os.environ.get("INBOX", "webhooks.sqlite"))
settings.configure(
    ROOT_URLCONF=__name__,
    ALLOWED_HOSTS=["127.0.0.1", "localhost"],
    SECRET_KEY=secrets.token_hex(),
    DATA_UPLOAD_MAX_MEMORY_SIZE=4 * 1024 * 1024,  # an order of 500 profiles, with room
)


@csrf_exempt  # the signature takes its place
@require_POST
def receive(request) -> HttpResponse:
    """Verify the raw bytes, store the event, answer. Handling it comes afterwards."""
    try:
        event = verify(request.headers, request.body, APP_SECRET)
    except WebhookError as error:
        logging.warning("webhook refused: %s", error)
        return HttpResponse(status=400 if isinstance(error, MalformedWebhook) else 401)
    inbox.receive(event)  # an error of the disk becomes a 500, and the event is sent again
    return HttpResponse(status=200)


def handle(event: Event) -> None:
    """Yours. Called at least once for each event; where it raises, the event comes again."""
    if event.stale and event.event_type == "DELIVERY_UPDATED":
        return  # a newer one came first, and its hints cover this one
    print(event.event_type, event.snapshot.order_no, ",".join(event.hints), flush=True)


urlpatterns = [path("webhooks", receive)]
application = get_wsgi_application()
Thread(target=inbox.keep_processing, args=(handle,), daemon=True).start()

if __name__ == "__main__":
    from wsgiref.simple_server import make_server

    port = int(os.environ.get("PORT", "9000"))
    make_server("127.0.0.1", port, application).serve_forever()  # type: ignore[arg-type]
