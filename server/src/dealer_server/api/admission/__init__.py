"""May this call in? Each request id once, each tenant its calls a second, each address its failed authentications.

One process keeps all three in memory. Several processes share request ids and QPS through Valkey (or Redis); when it is
lost they fall back to memory, and no call fails or waits for it. Times are seconds on any clock that does not jump,
such as `time.monotonic()`; the same clock for every call.
"""

from dealer_server.api.admission.local import Admission, LocalAdmission
from dealer_server.api.admission.shared import SharedAdmission

__all__ = ["Admission", "LocalAdmission", "SharedAdmission"]
