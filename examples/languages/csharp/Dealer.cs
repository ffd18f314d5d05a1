// The eSIM Dealer Open API with .NET and nothing else: `sign`, `order PACKAGE PRICE`, `verify`.
// Answers are read by `Field`, so that it compiles everywhere; a program on .NET has System.Text.Json for that.
using System;
using System.IO;
using System.Linq;
using System.Net.Http;
using System.Net.Http.Headers;
using System.Security.Cryptography;
using System.Text;
using System.Text.RegularExpressions;
using System.Threading.Tasks;

static class Dealer
{
    static readonly HttpClient Http = new HttpClient { Timeout = TimeSpan.FromSeconds(15) };

    static string Env(string name) => Environment.GetEnvironmentVariable(name) ?? "";

    static string Signature(string timestamp, string requestId, string appKey, byte[] body)
    {
        using (var hmac = new HMACSHA256(Encoding.UTF8.GetBytes(Env("ESIM_DEALER_APP_SECRET"))))
        {
            var text = Encoding.UTF8.GetBytes(timestamp + requestId + appKey).Concat(body).ToArray();
            return BitConverter.ToString(hmac.ComputeHash(text)).Replace("-", "").ToLowerInvariant();
        }
    }

    static async Task<string> Call(string path, string json)
    {
        var body = Encoding.UTF8.GetBytes(json); // made once: signed and sent are the same bytes
        var timestamp = DateTimeOffset.UtcNow.ToUnixTimeMilliseconds().ToString();
        var requestId = Guid.NewGuid().ToString();
        var appKey = Env("ESIM_DEALER_APP_KEY");
        var request = new HttpRequestMessage(HttpMethod.Post, Env("ESIM_DEALER_URL") + "/open-api/v1" + path);
        request.Content = new ByteArrayContent(body);
        request.Content.Headers.ContentType = new MediaTypeHeaderValue("application/json");
        request.Headers.Add("RT-AccessCode", appKey);
        request.Headers.Add("RT-RequestID", requestId);
        request.Headers.Add("RT-Timestamp", timestamp);
        request.Headers.Add("X-Signature", Signature(timestamp, requestId, appKey, body));
        var response = await Http.SendAsync(request);
        var answer = await response.Content.ReadAsStringAsync();
        if (Field(answer, "code") != "000000") throw new InvalidOperationException(path + " was refused: " + answer);
        return answer;
    }

    static string Field(string json, string name) => Regex.Match(json, "\"" + name + "\":\"([^\"]*)\"").Groups[1].Value;

    static async Task Order(string packageCode, string price)
    {
        var transactionId = "cs-" + Guid.NewGuid(); // store it first: the same id again never buys twice
        var line = $"{{\"packageCode\": \"{packageCode}\", \"quantity\": 1, \"price\": \"{price}\"}}";
        var order = $"{{\"transactionId\": \"{transactionId}\", \"amount\": \"{price}\", \"items\": [{line}]}}";
        var placed = await Call("/esim/order", order);
        while (Field(placed, "deliveryStatus") != "DELIVERED")
        {
            if (Field(placed, "deliveryStatus") == "FAILED") throw new InvalidOperationException("it failed: " + placed);
            await Task.Delay(1000);
            placed = await Call("/esim/query", $"{{\"orderNo\": \"{Field(placed, "orderNo")}\"}}");
        }
        Console.WriteLine(string.Join(" ", new[] { "orderNo", "iccid", "activationCode" }.Select(name => Field(placed, name))));
    }

    // The headers by their CGI names; the body as it was received, before any parsing.
    static bool Verify(Func<string, string> header, byte[] body)
    {
        var timestamp = header("HTTP_RT_TIMESTAMP");
        var right = Signature(timestamp, header("HTTP_RT_REQUESTID"), header("HTTP_RT_ACCESSCODE"), body);
        long.TryParse(timestamp, out var milliseconds);
        var fresh = Math.Abs(DateTimeOffset.UtcNow.ToUnixTimeMilliseconds() - milliseconds) <= 300000;
        var fits = false; // for a day after a reset of the AppSecret there are two
        foreach (var name in new[] { "HTTP_X_SIGNATURE", "HTTP_X_SIGNATURE_PREVIOUS" }) fits |= SameText(right, header(name));
        return fresh && fits;
    }

    // In constant time; .NET has CryptographicOperations.FixedTimeEquals.
    static bool SameText(string right, string given)
    {
        var different = right.Length ^ given.Length;
        for (var at = 0; at < right.Length && at < given.Length; at++) different |= right[at] ^ given[at];
        return different == 0;
    }

    static byte[] Input()
    {
        using (var input = Console.OpenStandardInput())
        using (var bytes = new MemoryStream())
        {
            input.CopyTo(bytes);
            return bytes.ToArray();
        }
    }

    static int Main(string[] words)
    {
        var command = words.Length > 0 ? words[0] : "";
        if (command == "order" && words.Length == 3) Order(words[1], words[2]).GetAwaiter().GetResult();
        else if (command == "sign") Console.WriteLine(Signature(Env("TIMESTAMP"), Env("REQUEST_ID"), Env("ESIM_DEALER_APP_KEY"), Input()));
        else if (command != "verify")
        {
            Console.Error.WriteLine("usage: Dealer order PACKAGE PRICE | sign | verify");
            return 2;
        }
        else if (Verify(Env, Input())) Console.WriteLine("verified: store it, answer 200, then work");
        else
        {
            Console.Error.WriteLine("not verified: answer 401");
            return 1;
        }
        return 0;
    }
}
