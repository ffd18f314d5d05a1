// The eSIM Dealer Open API with nothing but the standard library: `sign`, `order PACKAGE PRICE`, `verify`.
package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

var appKey, appSecret = os.Getenv("ESIM_DEALER_APP_KEY"), os.Getenv("ESIM_DEALER_APP_SECRET")

func signature(timestamp, requestID, appKey string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(appSecret))
	mac.Write([]byte(timestamp + requestID + appKey))
	mac.Write(body)
	return hex.EncodeToString(mac.Sum(nil))
}

type Order struct {
	OrderNo, DeliveryStatus string
	Items                   []struct {
		Profiles []struct{ Iccid, ActivationCode string }
	}
}

func call(path string, request any) (order Order) {
	body, _ := json.Marshal(request) // made once: signed and sent are the same bytes
	timestamp, requestID := strconv.FormatInt(time.Now().UnixMilli(), 10), randomID()
	post, err := http.NewRequest("POST", os.Getenv("ESIM_DEALER_URL")+"/open-api/v1"+path, bytes.NewReader(body))
	check(err)
	post.Header.Set("Content-Type", "application/json")
	post.Header.Set("RT-AccessCode", appKey)
	post.Header.Set("RT-RequestID", requestID)
	post.Header.Set("RT-Timestamp", timestamp)
	post.Header.Set("X-Signature", signature(timestamp, requestID, appKey, body))
	client := http.Client{Timeout: 15 * time.Second}
	response, err := client.Do(post)
	check(err)
	defer response.Body.Close()
	var answer struct {
		Code, Message string
		Data          json.RawMessage
	}
	check(json.NewDecoder(response.Body).Decode(&answer))
	if answer.Code != "000000" {
		log.Fatalf("%s was refused: %s %s", path, answer.Code, answer.Message)
	}
	check(json.Unmarshal(answer.Data, &order))
	return order
}

func order(packageCode, price string) {
	line := map[string]any{"packageCode": packageCode, "quantity": 1, "price": price}
	transactionID := "go-" + randomID() // store it first: the same id again never buys twice
	placed := call("/esim/order", map[string]any{"transactionId": transactionID, "amount": price, "items": []any{line}})
	for placed.DeliveryStatus != "DELIVERED" {
		if placed.DeliveryStatus == "FAILED" {
			log.Fatalf("%s failed and is refunded", placed.OrderNo)
		}
		time.Sleep(time.Second)
		placed = call("/esim/query", map[string]any{"orderNo": placed.OrderNo})
	}
	esim := placed.Items[0].Profiles[0]
	fmt.Println(placed.OrderNo, esim.Iccid, esim.ActivationCode)
}

// body as it was received, before any parsing.
func verify(headers http.Header, body []byte) bool {
	timestamp := headers.Get("RT-Timestamp")
	right := []byte(signature(timestamp, headers.Get("RT-RequestID"), headers.Get("RT-AccessCode"), body))
	milliseconds, _ := strconv.ParseInt(timestamp, 10, 64)
	age := time.Since(time.UnixMilli(milliseconds))
	fresh := -300*time.Second <= age && age <= 300*time.Second
	// For a day after a reset of the AppSecret there are two.
	return fresh && (hmac.Equal(right, []byte(headers.Get("X-Signature"))) ||
		hmac.Equal(right, []byte(headers.Get("X-Signature-Previous"))))
}

func main() {
	command := ""
	if len(os.Args) > 1 {
		command = os.Args[1]
	}
	if command == "order" && len(os.Args) != 4 {
		command = ""
	}
	switch command {
	case "order":
		order(os.Args[2], os.Args[3])
	case "sign":
		body, _ := io.ReadAll(os.Stdin)
		fmt.Println(signature(os.Getenv("TIMESTAMP"), os.Getenv("REQUEST_ID"), appKey, body))
	case "verify": // the headers as CGI names them
		headers := http.Header{}
		for _, each := range os.Environ() {
			if name, text, _ := strings.Cut(each, "="); strings.HasPrefix(name, "HTTP_") {
				headers.Set(strings.ReplaceAll(name[5:], "_", "-"), text)
			}
		}
		body, _ := io.ReadAll(os.Stdin)
		if !verify(headers, body) {
			log.Fatal("not verified: answer 401")
		}
		fmt.Println("verified: store it, answer 200, then work")
	default:
		fmt.Fprintln(os.Stderr, "usage: dealer order PACKAGE PRICE | sign | verify")
		os.Exit(2)
	}
}

func randomID() string {
	id := make([]byte, 16)
	_, err := rand.Read(id)
	check(err)
	return hex.EncodeToString(id)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
