"""What do the error codes of an RT-* reseller API mean for what was asked?"""

from dealer_server.suppliers.contract import RejectedCode
from dealer_server.suppliers.rt.calls import BUSY

# Errors after which surely nothing was ordered; all of them may be different elsewhere. Every other is Unknown. So is
# 900001 without status 429: "busy" does not say whether the order had been taken by then.
REFUSALS: dict[str, RejectedCode] = {
    BUSY: "TEMPORARY",
    "200007": "INSUFFICIENT_FUNDS",
    "200011": "OUT_OF_STOCK",
    **dict.fromkeys(("200005", "310201", "310211", "310221", "310231", "310241", "310243", "310251"), "CONFIG"),
    **dict.fromkeys(("101001", "101002", "101003", "101005"), "CONFIG"),
    **dict.fromkeys(("000101", "000102", "000103", "000104", "000105", "000106", "000107"), "BAD_REQUEST"),
    **dict.fromkeys(("200006", "200008"), "BAD_REQUEST"),
}
ALL_REFUSED = ("101001", "101002", "101003", "101005")  # our clock, address or credentials: whatever is asked for
PRICE, AMOUNT = "200005", "200006"
NOT_YET = "200010"
NOT_IN_THIS_STATUS = "200002"
# What a transactionId that is there already may be refused with.
AS_IF_THERE = ("200008",)
