-- Replays the signed requests of a file, each once. All have the same length, so that no memory limits how many.
-- Should they run out, the run is worth nothing: it ends with status 3.
local size = tonumber(os.getenv("REQUEST_BYTES"))
local file

function init()
  file = assert(io.open(os.getenv("REQUESTS"), "rb"))
  file:setvbuf("full", 1048576)
end

function request()
  local one = file:read(size)
  if not one or #one < size then
    os.exit(3)
  end
  return one
end

function done(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format(
    '\nRESULT {"requests":%d,"seconds":%.6f,"p50_ms":%.3f,"p99_ms":%.3f,"max_ms":%.3f,"bytes":%d,'
      .. '"errors":{"connect":%d,"read":%d,"write":%d,"status":%d,"timeout":%d}}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    latency.max / 1e3, summary.bytes, errors.connect, errors.read, errors.write, errors.status, errors.timeout))
end
