// The eSIM Dealer Open API with Java 17 and nothing else: `sign`, `order PACKAGE PRICE`, `verify`.
// Java has no JSON of its own; a program that has a library for it reads answers by that, not by `field`.

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.HexFormat;
import java.util.Map;
import java.util.UUID;
import java.util.regex.Pattern;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

import static java.nio.charset.StandardCharsets.UTF_8;

public class Dealer {
    static final Map<String, String> ENV = System.getenv();
    static final HttpClient HTTP = HttpClient.newHttpClient();

    static String signature(String timestamp, String requestId, String appKey, byte[] body) throws Exception {
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(ENV.get("ESIM_DEALER_APP_SECRET").getBytes(UTF_8), "HmacSHA256"));
        mac.update((timestamp + requestId + appKey).getBytes(UTF_8));
        return HexFormat.of().formatHex(mac.doFinal(body));
    }

    static String call(String path, String json) throws Exception {
        byte[] body = json.getBytes(UTF_8); // made once: signed and sent are the same bytes
        String timestamp = String.valueOf(System.currentTimeMillis());
        String requestId = UUID.randomUUID().toString();
        String appKey = ENV.get("ESIM_DEALER_APP_KEY");
        HttpRequest request = HttpRequest.newBuilder(URI.create(ENV.get("ESIM_DEALER_URL") + "/open-api/v1" + path))
                .timeout(Duration.ofSeconds(15))
                .header("Content-Type", "application/json")
                .header("RT-AccessCode", appKey)
                .header("RT-RequestID", requestId)
                .header("RT-Timestamp", timestamp)
                .header("X-Signature", signature(timestamp, requestId, appKey, body))
                .POST(HttpRequest.BodyPublishers.ofByteArray(body))
                .build();
        String answer = HTTP.send(request, HttpResponse.BodyHandlers.ofString()).body();
        if (!"000000".equals(field(answer, "code"))) {
            throw new IllegalStateException(path + " was refused: " + answer);
        }
        return answer;
    }

    static String field(String json, String name) {
        var found = Pattern.compile("\"" + name + "\":\"([^\"]*)\"").matcher(json);
        return found.find() ? found.group(1) : "";
    }

    static void order(String packageCode, String price) throws Exception {
        String transactionId = "java-" + UUID.randomUUID(); // store it first: the same id again never buys twice
        String placed = call("/esim/order", """
                {"transactionId": "%s", "amount": "%s", "items": [{"packageCode": "%s", "quantity": 1, "price": "%s"}]}
                """.formatted(transactionId, price, packageCode, price));
        while (!field(placed, "deliveryStatus").equals("DELIVERED")) {
            if (field(placed, "deliveryStatus").equals("FAILED")) {
                throw new IllegalStateException(field(placed, "orderNo") + " failed and is refunded");
            }
            Thread.sleep(1000);
            placed = call("/esim/query", "{\"orderNo\": \"%s\"}".formatted(field(placed, "orderNo")));
        }
        System.out.println(String.join(" ",
                field(placed, "orderNo"), field(placed, "iccid"), field(placed, "activationCode")));
    }

    /** The headers by their CGI names; the body as it was received, before any parsing. */
    static boolean verify(Map<String, String> headers, byte[] body) throws Exception {
        String timestamp = headers.getOrDefault("HTTP_RT_TIMESTAMP", "");
        byte[] right = signature(timestamp, headers.getOrDefault("HTTP_RT_REQUESTID", ""),
                headers.getOrDefault("HTTP_RT_ACCESSCODE", ""), body).getBytes(UTF_8);
        boolean fresh = timestamp.matches("[0-9]{13}")
                && Math.abs(System.currentTimeMillis() - Long.parseLong(timestamp)) <= 300_000;
        boolean fits = false;
        for (String name : new String[] {"HTTP_X_SIGNATURE", "HTTP_X_SIGNATURE_PREVIOUS"}) { // two after a reset
            fits |= MessageDigest.isEqual(right, headers.getOrDefault(name, "").getBytes(UTF_8));
        }
        return fresh && fits;
    }

    public static void main(String[] words) throws Exception {
        String command = words.length > 0 ? words[0] : "";
        if (command.equals("order") && words.length == 3) {
            order(words[1], words[2]);
        } else if (command.equals("sign")) {
            byte[] body = System.in.readAllBytes();
            String appKey = ENV.get("ESIM_DEALER_APP_KEY");
            System.out.println(signature(ENV.get("TIMESTAMP"), ENV.get("REQUEST_ID"), appKey, body));
        } else if (!command.equals("verify")) {
            System.err.println("usage: Dealer order PACKAGE PRICE | sign | verify");
            System.exit(2);
        } else if (verify(ENV, System.in.readAllBytes())) {
            System.out.println("verified: store it, answer 200, then work");
        } else {
            System.err.println("not verified: answer 401");
            System.exit(1);
        }
    }
}
