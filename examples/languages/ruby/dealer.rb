# The eSIM Dealer Open API with nothing but the standard library: `sign`, `order PACKAGE PRICE`, `verify`.
require "json"
require "net/http"
require "openssl"
require "securerandom"

APP_KEY = ENV.fetch("ESIM_DEALER_APP_KEY")
APP_SECRET = ENV.fetch("ESIM_DEALER_APP_SECRET")

def signature(timestamp, request_id, app_key, body)
  OpenSSL::HMAC.hexdigest("SHA256", APP_SECRET, (timestamp + request_id + app_key).b + body.b)
end

def call(path, request)
  body = JSON.generate(request) # made once: signed and sent are the same bytes
  timestamp = (Time.now.to_f * 1000).to_i.to_s
  request_id = SecureRandom.uuid
  headers = {
    "Content-Type" => "application/json",
    "RT-AccessCode" => APP_KEY,
    "RT-RequestID" => request_id,
    "RT-Timestamp" => timestamp,
    "X-Signature" => signature(timestamp, request_id, APP_KEY, body)
  }
  url = URI("#{ENV.fetch("ESIM_DEALER_URL")}/open-api/v1#{path}")
  answer = JSON.parse(Net::HTTP.post(url, body, headers).body)
  abort "#{path} was refused: #{answer["code"]} #{answer["message"]}" unless answer["code"] == "000000"
  answer["data"]
end

def order(package_code, price)
  transaction_id = "rb-#{SecureRandom.uuid}" # store it first: the same id again never buys twice
  items = [{ packageCode: package_code, quantity: 1, price: price }]
  placed = call("/esim/order", { transactionId: transaction_id, amount: price, items: items })
  until placed["deliveryStatus"] == "DELIVERED"
    abort "#{placed["orderNo"]} failed and is refunded" if placed["deliveryStatus"] == "FAILED"
    sleep 1
    placed = call("/esim/query", { orderNo: placed["orderNo"] })
  end
  esim = placed["items"][0]["profiles"][0]
  puts [placed["orderNo"], esim["iccid"], esim["activationCode"]].join(" ")
end

# The headers as Rack's `env` has them; the body as it was received, before any parsing.
def verify(env, body)
  timestamp = env["HTTP_RT_TIMESTAMP"].to_s
  right = signature(timestamp, env["HTTP_RT_REQUESTID"].to_s, env["HTTP_RT_ACCESSCODE"].to_s, body)
  given = [env["HTTP_X_SIGNATURE"], env["HTTP_X_SIGNATURE_PREVIOUS"]].compact # two for a day after a reset
  fresh = (Time.now.to_f - timestamp.to_i / 1000.0).abs <= 300
  fresh && given.any? { |each| OpenSSL.secure_compare(right, each) }
end

case ARGV
in ["order", package_code, price] then order(package_code, price)
in ["sign"] then puts signature(ENV.fetch("TIMESTAMP"), ENV.fetch("REQUEST_ID"), APP_KEY, $stdin.binmode.read)
in ["verify"]
  abort "not verified: answer 401" unless verify(ENV, $stdin.binmode.read)
  puts "verified: store it, answer 200, then work"
else
  warn "usage: dealer.rb order PACKAGE PRICE | sign | verify"
  exit 2
end
