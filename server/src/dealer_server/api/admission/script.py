"""The script by which Valkey admits calls, and what its answer means."""

import struct

from dealer_server.api.admission.local import REUSED, UNLIMITED, Admission
from dealer_server.api.admission.request_ids import REQUEST_ID_SECONDS
from dealer_server.rules.access import rate_limit

# One run admits many calls: KEYS are a request id and a bucket for each, ARGV its QPS. Answers nine bytes a call:
# -1 reused, 0 refused, 1 allowed, then how many seconds the bucket is from full. See rules/access/rate_limit.py.
# The server's clock counts, so that all processes agree; from an origin near enough for doubles to keep microseconds.
ADMIT_SCRIPT = f"""
local time = redis.call('TIME')
local now = (time[1] - 1700000000) + time[2] / 1000000
local full_at, answers = {{}}, {{}}
for i = 1, #KEYS, 2 do
  local bucket, qps = KEYS[i + 1], tonumber(ARGV[(i + 1) / 2])
  local decision, debt = 1, 0
  if not redis.call('SET', KEYS[i], '', 'NX', 'PX', {REQUEST_ID_SECONDS * 1000}) then
    decision = -1
  elseif qps > 0 then
    debt = (full_at[bucket] or tonumber(redis.call('GET', bucket) or '0')) - now
    if debt < 0 then debt = 0 end
    if debt > {rate_limit.BURST_SECONDS + rate_limit.CLOCK_STEP_SECONDS} then
      debt = {rate_limit.BURST_SECONDS} - 1 / qps
    end
    if debt * qps + 1 > {rate_limit.BURST_SECONDS} * qps + {rate_limit.ROUNDING} then
      decision = 0
    else
      debt = debt + 1 / qps
    end
    full_at[bucket] = now + debt
  end
  answers[#answers + 1] = struct.pack('<bd', decision, debt)
end
for bucket, time in pairs(full_at) do
  redis.call('SET', bucket, string.format('%.9f', time), 'PX', math.ceil((time - now) * 1000) + 1000)
end
return table.concat(answers)
"""
ANSWER = struct.Struct("<bd")


def admission_of(decision: int, debt: float, qps: int) -> Admission:
    """What the script's answer to one call means."""
    if decision < 0:
        return REUSED
    if not qps:
        return UNLIMITED
    allowance = rate_limit.allowed if decision else rate_limit.refused
    return Admission(True, allowance(debt, qps, qps * rate_limit.BURST_SECONDS, qps))
