// Signs a call as specification 5 says and sends it to the server that this page came from. The AppSecret becomes a key
// of WebCrypto here; only the signature is sent.
(() => {
  const form = document.querySelector("#try form"), answer = document.getElementById("try-answer");
  const fields = form.elements, KEPT = "try-it";
  const made = (tag, properties, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };
  const hex = (bytes) => [...new Uint8Array(bytes)].map((byte) => byte.toString(16).padStart(2, "0")).join("");

  const signed = async (body) => {
    const timestamp = String(Date.now()), requestId = crypto.randomUUID(), appKey = fields.key.value.trim();
    const bytes = (text) => new TextEncoder().encode(text);
    const algorithm = { name: "HMAC", hash: "SHA-256" };
    const key = await crypto.subtle.importKey("raw", bytes(fields.secret.value.trim()), algorithm, false, ["sign"]);
    const signature = hex(await crypto.subtle.sign("HMAC", key, bytes(timestamp + requestId + appKey + body)));
    return {
      "Content-Type": "application/json", "RT-AccessCode": appKey, "RT-RequestID": requestId,
      "RT-Timestamp": timestamp, "X-Signature": signature,
    };
  };

  const listed = (headers) => made("dl", { className: "headers" },
    ...headers.flatMap(([name, value]) => [made("dt", { textContent: name }), made("dd", { textContent: value })]));
  const folded = (title, content) => made("details", {}, made("summary", { textContent: title }), content);
  const code = (text) => made("pre", { tabIndex: 0 }, made("code", { textContent: text }));
  const pretty = (text) => { try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; } };
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

  const shown = (response, text, sent, body, took) => {
    const result = (() => { try { return JSON.parse(text).code; } catch { return undefined; } })();
    const status = made("strong", { className: response.ok ? "" : "bad", textContent: `HTTP ${response.status}` });
    const head = made("div", { className: "answer-head" }, status);
    if (result && result !== "000000") head.append(made("a", { href: `/docs/errors#${result}`, textContent: result }));
    else if (result) head.append(made("span", { textContent: result }));
    head.append(made("span", { textContent: `${took} ms` }));
    const curl = [`curl ${quoted(location.origin + form.dataset.path)}`,
      ...Object.entries(sent).map(([name, value]) => `  --header ${quoted(`${name}: ${value}`)}`), `  --data-raw ${quoted(body)}`];
    answer.replaceChildren(head, code(pretty(text)), folded("Headers of the answer", listed([...response.headers])),
      folded("Headers of the call", listed(Object.entries(sent))), folded("The same call by curl", code(curl.join(" \\\n"))));
  };
  const failed = (why) => answer.replaceChildren(made("p", { className: "flash flash-bad" }, made("span", { textContent: why })));

  const keep = () => {
    try {
      if (fields.keep.checked) sessionStorage.setItem(KEPT, JSON.stringify([fields.key.value, fields.secret.value]));
      else sessionStorage.removeItem(KEPT);
    } catch { /* then nothing is kept */ }
  };
  const warn = () => { document.getElementById("try-live").hidden = !fields.key.value.trim().startsWith("ak_live_"); };

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (!crypto.subtle) return failed("A browser signs on pages of https and of this machine only.");
    const button = form.querySelector("[type=submit]"), body = fields.body.value;
    button.disabled = true;
    try {
      const headers = await signed(body), began = performance.now();
      const response = await fetch(form.dataset.path, { method: "POST", headers, body, credentials: "omit", cache: "no-store" });
      shown(response, await response.text(), headers, body, Math.round(performance.now() - began));
    } catch (error) {
      failed(`No answer: ${error.message}`);
    } finally {
      button.disabled = false;
    }
  });
  form.addEventListener("input", () => { keep(); warn(); });

  try { [fields.key.value, fields.secret.value] = JSON.parse(sessionStorage.getItem(KEPT)); fields.keep.checked = true; } catch { /* nothing kept */ }
  warn();
  // An idempotency key of one's own, so that the example is a new order.
  const own = `try-${crypto.getRandomValues(new Uint32Array(2)).join("-")}`, key = form.dataset.key;
  if (key) fields.body.value = fields.body.value.replace(new RegExp(`("${key}": )"[^"]*"`), `$1"${own}"`);
})();
