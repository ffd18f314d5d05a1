"""Which orders have work that is not over, of any kind? Each kind has an index that holds only what is not over."""

from dealer_server.store.webhooks.order_queue import UNFINISHED

WORK = (
    "SELECT tenant_id, order_id FROM order_item WHERE due_at IS NOT NULL",
    f"SELECT tenant_id, order_id FROM webhook_delivery WHERE {UNFINISHED}",
    "SELECT tenant_id, order_id FROM purchase WHERE due_at IS NOT NULL",
    "SELECT tenant_id, order_id FROM purchase WHERE state = 'PARKED'",
    "SELECT tenant_id, order_id FROM refund WHERE status = 'REFUNDING'",
    "SELECT tenant_id, order_id FROM refund WHERE due_at IS NOT NULL",
    "SELECT tenant_id, order_id FROM void_request WHERE due_at IS NOT NULL",
    "SELECT tenant_id, order_id FROM suspension WHERE due_at IS NOT NULL",
)
