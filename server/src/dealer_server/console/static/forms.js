// What forms do beyond being sent: units in step with a choice, the sum of an order, days in a month, a price that is not saved, and a preview of the install page as its brand is typed.
(() => {
  "use strict";
  const all = (selector, inside = document) => inside.querySelectorAll(selector);

  // An amount stands before the currency that is chosen in the same form.
  const tellUnits = () => {
    for (const unit of all("[data-unit-of]")) unit.textContent = document.getElementById(unit.dataset.unitOf).value;
  };
  tellUnits();
  document.addEventListener("change", tellUnits);

  // What so many cost, against the balance: as console/dealer/buying/package.py adds it up.
  const SCALE = 10000n;
  const amountText = (amount, decimals) => {
    const whole = String(amount / SCALE).replace(/\B(?=(\d{3})+$)/g, ",");
    return decimals ? `${whole}.${String(amount % SCALE).padStart(4, "0").slice(0, decimals)}` : whole;
  };
  const addUp = (form) => {
    const { sum, available, decimals } = form.dataset, inputs = [form.elements.quantity, form.elements.days].filter(Boolean);
    if (!inputs.every((input) => input.checkValidity())) return;
    const total = inputs.reduce((product, input) => product * BigInt(input.value), BigInt(sum)), left = BigInt(available) - total;
    const write = (name, amount) => { for (const one of all(`[data-sum-${name}]`, form)) one.textContent = amountText(amount, Number(decimals)); };
    write("total", total);
    if (left < 0n) write("missing", -left); else write("after", left);
    for (const one of all("[data-when-short]", form)) one.hidden = left >= 0n;
    for (const one of all("[data-when-covered]", form)) one.hidden = left < 0n;
  };
  for (const form of all("form[data-sum]")) addUp(form);
  document.addEventListener("input", (event) => { const form = event.target.closest("form[data-sum]"); if (form) addUp(form); });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-step]"), input = button?.parentElement.querySelector("input");
    if (!input) return;
    if (Number(button.dataset.step) > 0) input.stepUp(); else input.stepDown();
    input.dispatchEvent(new Event("input", { bubbles: true }));
  });

  // What a markup that is typed leaves: as console/dealer/buying/package.py says it of the one that is sent.
  document.addEventListener("input", (event) => {
    const form = event.target.closest("form[data-markup]");
    if (!form || !event.target.checkValidity()) return;
    const cost = BigInt(form.dataset.markup), unit = BigInt(form.dataset.unit), tenths = BigInt(Math.round(event.target.value * 10));
    const price = ((cost * (1000n + tenths) * 2n + 1000n * unit) / (2000n * unit)) * unit, left = price - cost;
    const margin = (2000n * left + price) / (2n * price || 1n), decimals = Number(form.dataset.decimals);
    const texts = { price: amountText(price, decimals), left: amountText(left, decimals), margin: `${margin / 10n}.${margin % 10n} %` };
    for (const [name, text] of Object.entries(texts)) form.querySelector(`[data-markup-${name}]`).textContent = text;
    const suggested = price === BigInt(form.dataset.suggested), same = form.querySelector("[data-markup-same]");
    if (same) same.textContent = suggested ? "as suggested" : "";
    form.querySelector("[data-markup-other]")?.toggleAttribute("hidden", suggested);
  });

  // A field for a file names the one that is chosen. A button that needs one of some fields waits until it is filled in.
  const nameFiles = () => {
    for (const input of all(".drop input[type=file]")) {
      const name = input.parentElement.querySelector("[data-file-name]");
      name.dataset.fileName ||= name.textContent;
      name.textContent = input.files[0]?.name || name.dataset.fileName;
      name.classList.toggle("is-chosen", input.files.length > 0);
    }
    for (const button of all("button[data-needs]")) button.disabled = !button.dataset.needs.split(" ").some((name) => button.form.elements[name].value.trim());
  };
  for (const name of ["input", "change"]) document.addEventListener(name, (event) => { if (event.target.closest("form:has(.drop)")) nameFiles(); });
  addEventListener("pageshow", nameFiles);
  nameFiles();
  // The buttons of a form stay in sight while something in it is not saved, and say how much; until then there is nothing to save.
  // What came back from the server unsaved is not counted. Of a page that answers a form, that form alone is not saved.
  const isChanged = (field) => {
    if (field.type === "file") return field.files.length > 0;
    if (field.type === "radio") return field.checked && !field.defaultChecked;
    if (field.type === "checkbox") return field.checked !== field.defaultChecked;
    if (field.localName === "select") return field.selectedIndex !== Math.max([...field.options].findIndex((option) => option.defaultSelected), 0);
    return field.value !== field.defaultValue;
  };
  const isUnsaved = (form, bar) => bar.dataset.unsaved === "" || (bar.dataset.unsaved === "sent" && new URL(form.getAttribute("action") || "", location.href).pathname === location.pathname);
  const countChanges = (form) => {
    const fields = [...form.elements].filter((field) => field.name && field.matches("input:not([type=hidden], [hidden]), select, textarea"));
    for (const field of fields) field.classList.toggle("changed", isChanged(field));
    const count = fields.filter(isChanged).length, bar = form.querySelector(".save-bar"), unsaved = isUnsaved(form, bar);
    form.classList.toggle("changed", unsaved || count > 0);
    bar.querySelector(".changes").textContent = unsaved ? "Not saved" : count ? `${count} ${count === 1 ? "change" : "changes"}` : bar.dataset.unchanged || "";
    if (bar.dataset.unchanged) bar.querySelector(".btn-primary").disabled = !unsaved && !count;
  };
  for (const form of all("form:has(.save-bar)")) {
    for (const name of ["input", "change"]) form.addEventListener(name, () => countChanges(form));
    form.addEventListener("reset", () => setTimeout(() => countChanges(form)));
    addEventListener("pageshow", () => countChanges(form));
    countChanges(form);
  }

  // A suggestion is added to what stands in its field.
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-fills]"), field = link && document.getElementById(link.dataset.fills);
    if (!field) return;
    event.preventDefault();
    field.value = [...new Set(`${field.value}\n${link.dataset.lines}`.split("\n").filter(Boolean))].join("\n");
    field.dispatchEvent(new Event("input", { bubbles: true }));
    field.focus();
  });

  // Nobody leaves what is not saved unasked.
  let sent = false;
  document.addEventListener("submit", () => { sent = true; });
  document.addEventListener("click", (event) => { if (event.target.closest("[data-cancels]")) sent = true; });
  addEventListener("pageshow", () => { sent = false; });
  addEventListener("beforeunload", (event) => { if (!sent && document.querySelector("form.changed .save-bar")) event.preventDefault(); });

  // A package is bought beside the catalogue: the card of its page that buys, in a dialog at the side.
  const NAMED = ["id", "for", "aria-describedby", "aria-controls"];
  const openDrawer = async (link) => {
    const reply = await fetch(link.href), page = new DOMParser().parseFromString(await reply.text(), "text/html");
    const buy = page.querySelector("section[aria-label=Buy]");
    if (!reply.ok || !buy) { location.assign(link.href); return; }
    for (const name of NAMED) for (const one of all(`[${name}]`, buy)) one.setAttribute(name, one.getAttribute(name).replace(/\S+/g, "drawer-$&"));
    const dialog = document.createElement("dialog"), title = page.querySelector("h1"), details = document.createElement("a");
    const head = document.createElement("div"), close = document.createElement("button");
    dialog.className = "dialog drawer";
    dialog.setAttribute("aria-labelledby", "drawer-title");
    title.id = "drawer-title";
    head.className = "drawer-head";
    Object.assign(close, { type: "button", className: "btn btn-icon", ariaLabel: "Close", textContent: "×" });
    close.addEventListener("click", () => dialog.close());
    Object.assign(details, { href: link.href, textContent: "Coverage, networks and plans" });
    head.append(title, close);
    dialog.append(head, details, buy);
    dialog.addEventListener("close", () => { dialog.remove(); link.focus(); });
    dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
    document.body.append(dialog);
    dialog.showModal();
    for (const form of all("form[data-sum]", dialog)) addUp(form);
    dialog.querySelector("input[name=quantity]")?.focus();
  };
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-drawer]");
    if (!link || event.defaultPrevented || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey || event.button) return;
    event.preventDefault();
    event.stopPropagation();
    openDrawer(link).catch(() => location.assign(link.href));
  }, true);

  // The days of a filter: typed as the console writes days, or chosen in a month, the first one and then the last.
  const iso = (date) => date.toISOString().slice(0, 10);
  const monthOf = (day) => {
    const date = new Date(`${day.slice(0, 7)}-01T00:00:00Z`);
    return Number.isNaN(date.getTime()) ? monthOf(iso(new Date())) : date;
  };
  const calendar = (panel, first, last) => {
    const box = document.createElement("div"), from = { value: "" };
    let month = monthOf(last.value || first.value);
    box.className = "month";
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", "Calendar");
    const add = (text, act, label = "", kind = "") => {
      const button = document.createElement("button");
      Object.assign(button, { type: "button", textContent: text, className: kind, tabIndex: -1 });
      if (label) button.setAttribute("aria-label", label);
      button.addEventListener("click", (event) => { event.stopPropagation(); act(); draw(); }); // it is drawn anew: the panel stays
      box.append(button);
      return button;
    };
    const turn = (months) => { month = new Date(Date.UTC(month.getUTCFullYear(), month.getUTCMonth() + months, 1)); };
    const choose = (day) => {
      const begun = from.value;
      [first.value, last.value] = begun ? [begun, day].sort() : [day, day];
      from.value = begun ? "" : day;
    };
    const draw = () => {
      box.replaceChildren();
      add("‹", () => turn(-1), "Month before");
      const name = document.createElement("span");
      name.className = "month-name";
      name.textContent = month.toLocaleDateString("en-GB", { month: "long", year: "numeric", timeZone: "UTC" });
      box.append(name);
      add("›", () => turn(1), "Month after");
      for (const word of ["Mo", "Tu", "We", "Th", "Fr", "Sa", "Su"]) {
        const one = document.createElement("span");
        Object.assign(one, { textContent: word, className: "month-head" });
        box.append(one);
      }
      const before = (month.getUTCDay() + 6) % 7, today = iso(new Date());
      for (const date = new Date(month); date.getUTCMonth() === month.getUTCMonth(); date.setUTCDate(date.getUTCDate() + 1)) {
        const day = iso(date), inside = first.value && first.value <= day && day <= last.value;
        const label = date.toLocaleDateString("en-GB", { dateStyle: "long", timeZone: "UTC" });
        const one = add(date.getUTCDate(), () => choose(day), label, `month-day${inside ? " chosen" : ""}${day === today ? " today" : ""}${date.getUTCDate() === 1 ? ` after-${before}` : ""}`);
        one.setAttribute("aria-pressed", String(Boolean(inside)));
      }
    };
    draw();
    for (const one of [first, last]) one.addEventListener("change", () => { month = monthOf(one.value); draw(); });
    panel.querySelector(".filter-apply").before(box);
  };
  for (const panel of all(".filter-panel")) {
    const [first, last] = all("input[type=date]", panel);
    if (!last) continue;
    for (const one of [first, last]) Object.assign(one, { type: "text", inputMode: "numeric", placeholder: "YYYY-MM-DD", pattern: "[0-9]{4}-[0-9]{2}-[0-9]{2}" });
    calendar(panel, first, last);
  }

  // Colours as rules/brand/colour.py works them out.
  const channels = (colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  const luminance = (colour) => {
    const [red, green, blue] = channels(colour).map((one) => one / 255).map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const contrast = (one, two) => {
    const [darker, lighter] = [luminance(one), luminance(two)].sort((a, b) => a - b);
    return (lighter + 0.05) / (darker + 0.05);
  };
  const mixed = (colour, other, percent) => {
    const others = channels(other);
    return "#" + channels(colour).map((one, at) => Math.floor((one * (100 - percent) + others[at] * percent) / 100).toString(16).padStart(2, "0")).join("");
  };
  const readable = (colour, towards, on) => {
    let percent = 0;
    while (contrast(mixed(colour, towards, percent), on) < 4.5) percent += 4;
    return mixed(colour, towards, percent);
  };
  const shades = (colour) => ({
    fill: colour,
    on_fill: contrast(colour, "#ffffff") >= 4.5 ? "#ffffff" : "#000000",
    day: readable(colour, "#000000", "#ffffff"),
    night: readable(colour, "#ffffff", "#1b2029"),
  });

  const form = document.querySelector("form[data-brand]");
  if (!form) return;
  const { name, colour, logo, no_logo: noLogo } = form.elements;
  const pick = form.querySelector("[data-picks]"), neutral = colour.placeholder, previews = all(".brand-preview");
  const image = document.getElementById("preview-logo"), saved = image.getAttribute("href"); // all previews use it
  const cut = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);
  let chosen = null; // a logo that is not saved yet

  const draw = (preview) => {
    const picture = chosen ?? (noLogo?.checked ? null : saved), typed = name.value.trim();
    const written = colour.value.trim().toLowerCase(), valid = /^#[0-9a-f]{6}$/.test(written);
    const shade = shades(valid ? written : neutral), accent = shade[preview.dataset.theme];
    for (const one of all("[data-shade]", preview)) {
      const paint = one.dataset.shade === "accent" ? accent : shade[one.dataset.shade];
      one.setAttribute(one.hasAttribute("stroke") ? "stroke" : "fill", paint);
    }
    if (picture) image.setAttribute("href", picture); else image.removeAttribute("href");
    const bare = !picture && !typed;
    preview.querySelector("[data-unbranded]").setAttribute("display", bare ? "inline" : "none");
    const title = preview.querySelector("[data-name]");
    title.setAttribute("x", picture ? 46 : bare ? 34 : 14);
    title.textContent = cut(typed || (picture ? "" : "eSIM"), 18);
    const support = ["support_email", "support_phone", "support_url"].map((one) => form.elements[one].value.trim()).filter(Boolean);
    all("[data-support]", preview).forEach((help, line) => {
      help.textContent = cut(support[line] ?? (line || support.length ? "" : "Ask the shop where you bought it."), 36);
      help.setAttribute("fill", support.length ? accent : help.dataset.quiet);
    });
    if (valid) pick.value = written;
  };
  const drawAll = () => previews.forEach(draw);
  pick.addEventListener("input", () => { colour.value = pick.value; drawAll(); });
  logo.addEventListener("change", () => {
    const [file] = logo.files;
    if (!file) { chosen = null; drawAll(); return; }
    const reader = new FileReader();
    reader.addEventListener("load", () => { chosen = reader.result; drawAll(); });
    reader.readAsDataURL(file);
  });
  for (const name of ["input", "change"]) form.addEventListener(name, drawAll);
  form.addEventListener("reset", () => setTimeout(() => { chosen = null; drawAll(); }));
})();
