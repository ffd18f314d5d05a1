"""Why was nothing bought? In words for people who know no result codes."""

from collections.abc import Mapping

from dealer_server.rules.refusal import Refusal

TRY_AGAIN = "The service is busy. Nothing was bought; please try again."
_SENTENCES: Mapping[str, str] = {
    "200011": "Too few of them are in stock.",
    "200014": "It is not on sale any more.",
    "310241": "It is not on sale any more.",
    "200005": "Its price has changed.",
    "200006": "Its price has changed.",
    "200015": "It is not sold in the currency of your wallet.",
    "200020": "Your wallet is frozen. Please contact the operator.",
    "310402": "This form was used for another order. Please begin again.",
    "900001": TRY_AGAIN,
}


def plain(code: str, message: str, data: Mapping[str, object] | None = None) -> str:
    """One sentence. `data`: that of the refusal."""
    if code == "200007":
        available = (data or {}).get("availableBalance")
        about = f": {available} {(data or {}).get('currency')} are available" if available else ""
        return f"Your balance does not cover it{about}."
    return _SENTENCES.get(code) or message


def of(why: Refusal) -> str:
    return plain(why.code, why.message, why.data)
