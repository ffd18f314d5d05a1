// Theme, search and copying. Pages are whole without it.
(() => {
  const made = (tag, properties, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };

  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-theme-switch]")) window.switchTheme();
    if (event.target.closest("[data-search-open]")) openSearch();
  });

  // Each block of code can be copied.
  for (const block of document.querySelectorAll(".code")) {
    const button = made("button", { type: "button", className: "btn copy", textContent: "Copy" });
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(block.querySelector("code").textContent);
      button.classList.add("done");
      button.textContent = "Copied";
      setTimeout(() => { button.classList.remove("done"); button.textContent = "Copy"; }, 2000);
    });
    block.append(button);
  }

  // The contents of the page say where one is.
  const entries = new Map([...document.querySelectorAll(".toc a")].map((link) => [link.hash.slice(1), link]));
  if (entries.size) {
    const headings = [...document.querySelectorAll(".article :is(h2, h3)[id]")].filter((one) => entries.has(one.id));
    const mark = () => {
      // A section that is out of sight has a place, but what is in it has none until it is laid out.
      const passed = headings.filter((one) => one.parentElement.getBoundingClientRect().top < 130);
      const current = (passed.at(-1) ?? headings[0]).id;
      for (const [id, link] of entries) link.classList.toggle("seen", id === current);
    };
    document.addEventListener("scroll", mark, { passive: true });
    mark();
  }

  // What is out of sight is laid out a section at a time once the page is there: until then its height is a guess, and
  // what asks for places (assistive programs, axe) finds links that lie over one another. A browser that shows the page
  // to nobody may have no idle time to give: then a section is laid out without.
  const MOST_WAIT = 200;  // ms
  const waiting = [...document.querySelectorAll(".article > section")];
  const whenIdle = (work) => requestIdleCallback(work, { timeout: MOST_WAIT });
  const layOut = () => {
    const section = waiting.shift();
    if (!section) return;
    section.style.contentVisibility = "visible";
    whenIdle(layOut);
  };
  if (window.requestIdleCallback) window.addEventListener("load", () => whenIdle(layOut));

  document.querySelector(".nav-link.current")?.scrollIntoView({ block: "nearest" });

  // Search: the index of all pages is loaded once, when it is first opened, and searched here.
  const dialog = document.getElementById("search"), input = document.getElementById("search-input");
  const list = document.getElementById("search-list"), told = document.getElementById("search-told");
  const MOST = 12, AROUND = 60;
  const LAST = "/docs/changelog", LESS = 20; // what changed once stands behind what is so
  const ALSO = { csharp: ["c#"], dotnet: ["c#"], idempotent: ["idempotency", "transactionid"], idempotency: ["transactionid"] };
  const spellings = (word) => [word, ...(Object.hasOwn(ALSO, word) ? ALSO[word] : [])];
  let index;

  const load = async () => {
    const rows = await (await fetch(dialog.dataset.index)).json();
    return rows.map(([address, title, heading, anchor, text, label]) => ({
      address, title, heading, anchor, text, low: text.toLowerCase(), head: heading.toLowerCase(), page: `${title} ${label}`.toLowerCase(),
    }));
  };
  const openSearch = async () => {
    if (dialog.open) return;
    dialog.showModal();
    input.select();
    index ??= load();
    show();
  };
  const points = (row, word) => {
    const inHead = row.head.indexOf(word), ofPage = row.heading === row.title;
    let sum = row.low.includes(word) ? 3 : 0;
    if (inHead >= 0) sum += (row.head === word ? 60 : 20) + (inHead === 0 ? 10 : 0);
    if (row.page.includes(word)) sum += ofPage ? 15 : 5;
    return sum && ofPage && word.includes("/") && row.address.endsWith(word) ? sum + 100 : sum; // an operation's path
  };
  const score = (row, words) => {
    const each = words.map((word) => spellings(word).reduce((sum, one) => sum + points(row, one), 0));
    return each.includes(0) ? 0 : each.reduce((sum, one) => sum + one) / (row.address === LAST ? LESS : 1);
  };
  const marked = (text, words) => {
    const low = text.toLowerCase();
    const at = words.map((word) => low.indexOf(word)).filter((found) => found >= 0).sort((a, b) => a - b)[0] ?? 0;
    const from = Math.max(0, at - AROUND), cut = text.slice(from, from + 3 * AROUND), parts = [from ? "… " : ""];
    let rest = 0;
    while (rest < cut.length) {
      const next = words.map((word) => [cut.toLowerCase().indexOf(word, rest), word.length]).filter(([found]) => found >= 0)
        .sort((a, b) => a[0] - b[0])[0];
      if (!next) break;
      parts.push(cut.slice(rest, next[0]), made("mark", { textContent: cut.slice(next[0], next[0] + next[1]) }));
      rest = next[0] + next[1];
    }
    parts.push(cut.slice(rest), from + cut.length < text.length ? " …" : "");
    return parts;
  };
  const option = (row, words, number) => {
    const title = row.heading === row.title ? row.title : `${row.title} › ${row.heading}`;
    const link = made("a", { className: "palette-option", id: `found-${number}`, href: `${row.address}${row.heading === row.title ? "" : `#${row.anchor}`}`, role: "option", tabIndex: -1 },
      made("strong", { textContent: title }), made("small", {}, ...marked(row.text, words.flatMap(spellings))));
    link.ariaSelected = "false";
    return link;
  };
  const select = (chosen) => {
    for (const one of list.children) one.ariaSelected = String(one === chosen);
    if (chosen) input.setAttribute("aria-activedescendant", chosen.id);
    else input.removeAttribute("aria-activedescendant");
    chosen?.scrollIntoView({ block: "nearest" });
  };
  const show = async () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let rows;
    try { rows = await index; } catch { index = undefined; told.textContent = "The search index could not be loaded."; return; }
    if (words.join(" ") !== input.value.toLowerCase().split(/\s+/).filter(Boolean).join(" ")) return; // typed on meanwhile
    const found = words.length ? rows.map((row) => [score(row, words), row]).filter(([points]) => points).sort((a, b) => b[0] - a[0]) : [];
    list.replaceChildren(...found.slice(0, MOST).map(([, row], number) => option(row, words, number)));
    select(list.firstElementChild);
    told.textContent = words.length ? (found.length ? `${found.length} found` : "Nothing found") : "";
  };
  input.addEventListener("input", show);
  list.addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  input.addEventListener("keydown", (event) => {
    const options = [...list.children], at = options.findIndex((one) => one.ariaSelected === "true");
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      select(options.at((at + (event.key === "ArrowDown" ? 1 : -1)) % options.length));
    } else if (event.key === "Enter" && options[at]) {
      event.preventDefault();
      options[at].click();
    }
  });
  document.addEventListener("keydown", (event) => {
    const writing = event.target.closest("input, textarea, select");
    if ((event.key === "k" && (event.ctrlKey || event.metaKey)) || (event.key === "/" && !writing)) {
      event.preventDefault();
      openSearch();
    }
  });
})();
