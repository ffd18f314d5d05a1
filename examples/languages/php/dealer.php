<?php
// The eSIM Dealer Open API with PHP 8 and its curl extension: `sign`, `order PACKAGE PRICE`, `verify`.
declare(strict_types=1);

function signature(string $timestamp, string $requestId, string $appKey, string $body): string
{
    return hash_hmac('sha256', $timestamp . $requestId . $appKey . $body, getenv('ESIM_DEALER_APP_SECRET'));
}

function call(string $path, array $request): array
{
    $body = json_encode($request, JSON_THROW_ON_ERROR); // made once: signed and sent are the same bytes
    $timestamp = (string) (int) (microtime(true) * 1000);
    $requestId = bin2hex(random_bytes(16));
    $appKey = getenv('ESIM_DEALER_APP_KEY');
    $curl = curl_init(getenv('ESIM_DEALER_URL') . '/open-api/v1' . $path);
    curl_setopt_array($curl, [
        CURLOPT_POSTFIELDS => $body,
        CURLOPT_RETURNTRANSFER => true,
        CURLOPT_TIMEOUT => 15,
        CURLOPT_HTTPHEADER => [
            'Content-Type: application/json',
            "RT-AccessCode: $appKey",
            "RT-RequestID: $requestId",
            "RT-Timestamp: $timestamp",
            'X-Signature: ' . signature($timestamp, $requestId, $appKey, $body),
        ],
    ]);
    $answer = curl_exec($curl);
    if ($answer === false) {
        throw new RuntimeException("$path: " . curl_error($curl));
    }
    $answer = json_decode($answer, true, flags: JSON_THROW_ON_ERROR);
    if ($answer['code'] !== '000000') {
        throw new RuntimeException("$path was refused: {$answer['code']} {$answer['message']}");
    }
    return $answer['data'];
}

function order(string $packageCode, string $price): void
{
    $items = [['packageCode' => $packageCode, 'quantity' => 1, 'price' => $price]];
    $transactionId = 'php-' . bin2hex(random_bytes(16)); // store it first: the same id again never buys twice
    $placed = call('/esim/order', ['transactionId' => $transactionId, 'amount' => $price, 'items' => $items]);
    while ($placed['deliveryStatus'] !== 'DELIVERED') {
        if ($placed['deliveryStatus'] === 'FAILED') {
            throw new RuntimeException("{$placed['orderNo']} failed and is refunded");
        }
        sleep(1);
        $placed = call('/esim/query', ['orderNo' => $placed['orderNo']]);
    }
    $esim = $placed['items'][0]['profiles'][0];
    echo "{$placed['orderNo']} {$esim['iccid']} {$esim['activationCode']}\n";
}

/** $server is $_SERVER, which has the headers; $body is file_get_contents('php://input') as it is. */
function verify(array $server, string $body): bool
{
    $timestamp = $server['HTTP_RT_TIMESTAMP'] ?? '';
    $right = signature($timestamp, $server['HTTP_RT_REQUESTID'] ?? '', $server['HTTP_RT_ACCESSCODE'] ?? '', $body);
    $fresh = abs(microtime(true) - (int) $timestamp / 1000) <= 300;
    return $fresh && (hash_equals($right, $server['HTTP_X_SIGNATURE'] ?? '')
        || hash_equals($right, $server['HTTP_X_SIGNATURE_PREVIOUS'] ?? '')); // two for a day after a reset
}

[$command, $packageCode, $price] = array_slice([...$argv, '', '', ''], 1, 3);
if ($command === 'order' && $price !== '') {
    order($packageCode, $price);
} elseif ($command === 'sign') {
    $body = stream_get_contents(STDIN);
    echo signature(getenv('TIMESTAMP'), getenv('REQUEST_ID'), getenv('ESIM_DEALER_APP_KEY'), $body), "\n";
} elseif ($command !== 'verify') {
    fwrite(STDERR, "usage: dealer.php order PACKAGE PRICE | sign | verify\n");
    exit(2);
} elseif (verify(getenv(), stream_get_contents(STDIN))) {
    echo "verified: store it, answer 200, then work\n";
} else {
    fwrite(STDERR, "not verified: answer 401\n");
    exit(1);
}
