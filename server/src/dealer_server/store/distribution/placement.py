"""Where does each table stand on a cluster? With its tenant on a worker node, or on the coordinator alone."""

# What grows with orders. Distributed by tenant_id and colocated, so that all rows of a dealer stand on one node and a
# transaction about one dealer is a transaction of that node. Parents before children.
BY_TENANT = (
    *("wallet", "ledger_entry", "topup", "wallet_look", "report_cursor", "price"),
    *("orders", "order_item", "profile", "profile_life"),
    *("purchase", "supplier_call", "suspension", "sms", "void_request", "refund", "refund_line"),
    *("webhook_endpoint", "webhook_delivery", "webhook_attempt"),
    "buyer_mail",
)

# A copy on every node: what statements about one dealer look up. Changed seldom, and by people; while a node is away it
# cannot be changed.
ON_EVERY_NODE = ("price_list", "tenant", "credential", "package", "supplier", "route_terms")

# Plain tables of the coordinator, to which a transaction about one dealer does not write: their writes need no second
# phase when it commits.
APART = frozenset({"api_minute", "change", "id_block", "used_request", "worker_seen", "migration", "distribution"})

# Unique over all dealers: what one node cannot check. The coordinator's table purchase_claim does it instead.
UNIQUE_OVER_ALL = {
    "purchase_unit_ref": "CREATE INDEX purchase_unit_ref ON purchase (supplier, unit_ref) WHERE unit_ref IS NOT NULL",
    "purchase_iccid": "CREATE INDEX purchase_iccid ON purchase (supplier, iccid)"
    " WHERE iccid IS NOT NULL AND unit_ref IS NULL AND supplier_ref IS NULL",
}

# Identities become sequences of the coordinator: ids of all dealers are in one order.
IDENTITIES = {"webhook_delivery": "delivery_id", "suspension": "suspension_id", "buyer_mail": "mail_id"}
