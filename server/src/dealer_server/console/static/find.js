// Type-ahead fields and the palette. Without it a field takes a number or a whole name, and the search page finds.
(() => {
  "use strict";
  const WAIT = 150, MOST = 8, SHORTEST = 3;
  let made = 0;

  // A text field with a list under it (the combobox pattern of WAI-ARIA): the keyboard stays in the field.
  const combobox = (input, list, choose, closes) => {
    let active = null;
    input.setAttribute("role", "combobox");
    input.setAttribute("aria-autocomplete", "list");
    input.setAttribute("aria-controls", list.id);
    input.setAttribute("aria-expanded", "false");
    list.setAttribute("role", "listbox");
    const options = () => [...list.querySelectorAll("[role=option]")];
    const mark = (option) => {
      active?.setAttribute("aria-selected", "false");
      active = option ?? null;
      if (!active) { input.removeAttribute("aria-activedescendant"); return; }
      active.setAttribute("aria-selected", "true");
      input.setAttribute("aria-activedescendant", active.id);
      active.scrollIntoView({ block: "nearest" });
    };
    const show = (first) => {
      const found = options();
      for (const option of found) option.id ||= `option-${++made}`;
      list.hidden = !found.length;
      input.setAttribute("aria-expanded", String(found.length > 0));
      mark(first ? found[0] : null);
    };
    const hide = () => { list.hidden = true; input.setAttribute("aria-expanded", "false"); mark(null); };
    input.addEventListener("keydown", (event) => {
      const found = options(), open = !list.hidden && found.length;
      const go = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (go && open) {
        event.preventDefault();
        const at = found.indexOf(active);
        mark(found[at < 0 ? (go > 0 ? 0 : found.length - 1) : (at + go + found.length) % found.length]);
      } else if (event.key === "Enter" && open && active) {
        event.preventDefault();
        choose(active, event);
      } else if (event.key === "Escape" && open && closes) {
        event.preventDefault();
        hide();
      } else if (event.key === "Tab" && closes) hide();
    });
    list.addEventListener("pointerdown", (event) => event.preventDefault());  // the field keeps the focus
    list.addEventListener("click", (event) => {
      const option = event.target.closest("[role=option]");
      if (option) choose(option, event);
    });
    return { show, hide };
  };

  // One request at a time: what was asked before is given up. null where it was, or where nothing was found.
  const asker = () => {
    let timer, under;
    return (address, wait = WAIT) => new Promise((done) => {
      clearTimeout(timer);
      under?.abort();
      if (!address) { done(null); return; }
      timer = setTimeout(async () => {
        const mine = (under = new AbortController());
        try {
          const answer = await fetch(address, { signal: mine.signal, headers: { "HX-Request": "true" } });
          const to = answer.headers.get("HX-Redirect");
          if (to) location.assign(to);
          else done(answer.ok ? new DOMParser().parseFromString(await answer.text(), "text/html") : new Error(String(answer.status)));
        } catch (error) {
          if (error.name !== "AbortError") done(error);
        }
      }, wait);
    });
  };

  // Fields that take one of many: <input data-lookup="address">
  const lookup = (input) => {
    const list = document.createElement("div");
    list.className = "lookup-list";
    list.id = `lookup-${++made}`;
    list.hidden = true;
    list.setAttribute("aria-label", "Matches");
    input.after(list);
    const ask = asker();
    const choose = (option) => {
      input.value = option.dataset.value;
      box.hide();
      input.dispatchEvent(new Event("change", { bubbles: true }));
      if (input.form?.matches(".filter-bar")) input.form.requestSubmit();
    };
    const box = combobox(input, list, choose, true);
    const look = async () => {
      const found = await ask(`${input.dataset.lookup}?q=${encodeURIComponent(input.value.trim())}`);
      if (!found || document.activeElement !== input) return;
      list.replaceChildren(...(found instanceof Error ? [] : found.querySelectorAll("#options > [role=option]")));
      box.show(false);
    };
    input.addEventListener("input", look);
    input.addEventListener("focus", () => { input.select(); });
    input.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown" && list.hidden) { event.preventDefault(); look(); }
    });
    input.addEventListener("blur", () => { ask(null); box.hide(); });
  };
  const lookups = () => { for (const one of document.querySelectorAll("[data-lookup]:not([role=combobox])")) lookup(one); };
  document.addEventListener("htmx:after:swap", lookups);
  lookups();

  // The palette: pages, actions of this page, and what the search finds.
  const palette = document.getElementById("palette");
  if (!palette) return;
  const input = document.getElementById("palette-input"), list = document.getElementById("palette-list");
  const told = document.getElementById("palette-told");
  const ask = asker();
  const choose = (option, event) => {
    palette.close();
    if (option.run) option.run();
    else if (event.ctrlKey || event.metaKey) open(option.dataset.href);
    else location.assign(option.dataset.href);
  };
  const box = combobox(input, list, choose, false);

  const option = (text, about, what) => {
    const made = document.createElement("div"), name = document.createElement("bdi");
    made.setAttribute("role", "option");
    made.setAttribute("aria-selected", "false");
    made.className = "palette-option";
    name.textContent = text;
    made.append(name);
    for (const [kind, more] of Object.entries(about)) {
      if (!more) continue;
      const part = document.createElement("span");
      part.className = kind;
      part.textContent = more;
      made.append(" ", part);
    }
    if (typeof what === "function") made.run = what; else made.dataset.href = what;
    return made;
  };
  const group = (name, options) => {
    if (!options.length) return [];
    const box = document.createElement("div"), head = document.createElement("div");
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", name);
    head.className = "palette-head";
    head.setAttribute("aria-hidden", "true");
    head.textContent = name;
    box.append(head, ...options);
    return [box];
  };
  const words = () => input.value.toLowerCase().split(/\s+/).filter(Boolean);
  const fitting = (elements) => {
    const asked = words();
    return [...elements]
      .map((one) => [(one.dataset.palette ?? one.querySelector("span:not(.side-count)")?.textContent ?? one.textContent).trim(), one])
      .filter(([text]) => text && asked.every((word) => text.toLowerCase().includes(word)))
      .map(([text, one]) => option(text, {}, one.href ? one.getAttribute("href") : () => one.click()));
  };
  const local = () => [
    ...group("On this page", fitting(document.querySelectorAll("#main > .heading :is(.heading-actions, .heading-actions > .not-on-phone, .more-menu) > :is(a, button).btn:not(.more)"))),
    ...group("Pages", fitting(document.querySelectorAll("#side .side-link, #user-menu a")).slice(0, words().length ? MOST : 30)),
    ...group("Actions", fitting(document.getElementById("palette-actions").content.querySelectorAll("a"))
      .concat(fitting(document.querySelectorAll(".top-button, #user-menu button:not([data-theme-switch])")))),
  ];
  // Its state and amount or, without them, why it matched.
  const parts = (hit, kinds) => [...hit.querySelectorAll(kinds)].map((part) => part.textContent.trim()).filter(Boolean);
  const said = (hit) => parts(hit, ".hit-state, .hit-amount").join(" · ") || parts(hit, ".hit-why").join("");
  const say = (text) => { told.textContent = text; };
  const count = () => list.querySelectorAll("[role=option]").length;
  const look = async () => {
    const text = input.value.trim();
    const mine = local();
    list.replaceChildren(...mine);
    box.show(text.length > 0);
    if (text.length < SHORTEST) { ask(null); say(text ? `${count()} found. Type ${SHORTEST} characters or more to search.` : ""); return; }
    say("Searching…");
    const found = await ask(`/console/search?q=${encodeURIComponent(text)}`);
    if (!found) return;
    if (found instanceof Error) { say("The search could not be reached. Press Enter to try again."); }
    else {
      for (const part of found.querySelectorAll("#hits > .hits"))
        list.append(...group(part.dataset.group, [...part.querySelectorAll("tr[data-href]")].map((hit) => option(
          hit.querySelector(".hit-title").textContent,
          { "palette-about": parts(hit, ".hit-about").join(", "), "palette-why": said(hit) },
          hit.dataset.href,
        ))));
      say(`${count()} found.${count() ? "" : " Press Enter for the search page."}`);
    }
    box.show(true);
  };
  const openPalette = () => {
    if (palette.open) return;
    input.value = "";
    palette.showModal();
    input.focus();
    look();
  };
  input.addEventListener("input", look);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.defaultPrevented && input.value.trim())
      location.assign(`/console/search?q=${encodeURIComponent(input.value.trim())}`);
  });
  palette.addEventListener("click", (event) => { if (event.target === palette) palette.close(); });
  document.addEventListener("click", (event) => { if (event.target.closest("[data-palette-open]")) openPalette(); });
  document.addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return;
    event.preventDefault();
    if (palette.open) palette.close(); else if (!document.querySelector("dialog:modal")) openPalette();
  });
  for (const key of document.querySelectorAll("[data-palette-open] kbd"))
    key.textContent = /Mac|iPhone|iPad/.test(navigator.platform) ? "⌘K" : "Ctrl K";
  // On the page of what was found, arrows go from one to the next.
  document.addEventListener("keydown", (event) => {
    if (!["ArrowDown", "ArrowUp"].includes(event.key) || event.altKey || event.ctrlKey || event.metaKey) return;
    const hits = [...document.querySelectorAll("#hits a.hit")], at = hits.indexOf(document.activeElement);
    if (at < 0 && (event.key === "ArrowUp" || document.activeElement !== document.body)) return;
    const next = hits[at + (event.key === "ArrowDown" ? 1 : -1)];
    if (next) { event.preventDefault(); next.focus(); }
  });
})();
