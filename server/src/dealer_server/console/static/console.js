// What pages do beyond links and forms. Everything works without it, only less comfortably.
(() => {
  "use strict";
  const all = (selector, inside = document) => inside.querySelectorAll(selector);
  const two = (number) => String(number).padStart(2, "0");

  // How long something lasts already; of times of lists the exact one, in UTC and here, where it is pointed at or focused. Everything is in UTC.
  const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
  const daily = (at) => `${at.getUTCDate()} ${MONTHS[at.getUTCMonth()]}`;
  const clock = (at) => at.toISOString().slice(11, 16);
  const here = (at) => {
    if (!at.getTimezoneOffset()) return "";
    const other = at.getDate() === at.getUTCDate() ? "" : `${at.getDate()} ${MONTHS[at.getMonth()]}, `;
    return `, ${other}${two(at.getHours())}:${two(at.getMinutes())} your time`;
  };
  // As rules/dates.py has it: in its two largest units.
  const lasted = (seconds) => {
    if (seconds < 60) return "under 1 min";
    const parts = [[seconds / 86400, "d"], [seconds / 3600 % 24, "h"], [seconds / 60 % 60, "min"]].map(([count, unit]) => [Math.floor(count), unit]);
    const first = parts.findIndex(([count]) => count);
    return parts.slice(first, first + 2).filter(([count]) => count).map((part) => part.join(" ")).join(" ");
  };
  const tellTimes = () => {
    for (const time of all("time[datetime]")) {
      const at = new Date(time.dateTime), whole = "exact" in time.dataset;
      const text = "since" in time.dataset ? `for ${lasted(Math.abs(Date.now() - at) / 1000)}` : time.textContent;
      if (time.textContent !== text) time.textContent = text;
      if (time.title) {
        if (!whole || here(at)) time.dataset.tip = time.title + here(at);
        time.removeAttribute("title");
      }
      if (time.dataset.tip && !time.closest("a, button, summary, tr[data-href]")) time.tabIndex = 0;
    }
    for (const badge of all(".state[title]")) { badge.dataset.tip = badge.title; badge.removeAttribute("title"); }
  };
  setInterval(() => { if (!document.hidden) tellTimes(); }, 30000);

  // Hints of times and states, also for those who use a keyboard.
  const tip = document.createElement("div");
  tip.id = "tip"; tip.role = "tooltip"; tip.className = "tip"; tip.hidden = true;
  const hint = (event) => {
    const about = event.target.closest?.("[data-tip]");
    tip.hidden = !about;
    if (!about) return;
    (about.closest("dialog") ?? document.body).append(tip);
    tip.textContent = about.dataset.tip;
    about.setAttribute("aria-describedby", "tip");
    const box = about.getBoundingClientRect();
    tip.style.left = `${Math.max(8, Math.min(box.left, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${box.top > tip.offsetHeight + 48 ? box.top - tip.offsetHeight - 6 : box.bottom + 6}px`;
  };
  document.addEventListener("pointerover", hint);
  document.addEventListener("focusin", hint);
  addEventListener("scroll", () => { tip.hidden = true; }, { capture: true, passive: true });

  const copy = async (button) => {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.classList.add("done");
    setTimeout(() => button.classList.remove("done"), 1500);
  };

  // Phones and some computers have a menu of their own to send a link with.
  const shareable = () => { if (navigator.share) for (const button of all("[data-share]")) button.hidden = false; };
  const share = (button) => navigator.share({ url: button.dataset.share }).catch(() => {});  // nobody was chosen

  document.addEventListener("click", (event) => {
    const target = event.target.closest("[data-copy], [data-share], [data-theme-switch], [data-print], button[commandfor], tr[data-href]");
    if (!target) return;
    if (target.matches("[data-copy]")) copy(target);
    else if (target.matches("[data-share]")) share(target);
    else if (target.matches("[data-theme-switch]")) switchTheme();
    else if (target.matches("[data-print]")) print();
    else if (target.matches("button[commandfor]")) openDialog(target);
    else if (!event.target.closest("a, button, input, select, label, summary") && !String(getSelection())) {
      if (event.ctrlKey || event.metaKey) open(target.dataset.href); else location.assign(target.dataset.href);
    }
  });

  // Browsers that know no `command` yet.
  const openDialog = (button) => {
    if ("command" in HTMLButtonElement.prototype) return;
    const dialog = document.getElementById(button.getAttribute("commandfor"));
    if (button.getAttribute("command") === "close") dialog.close(); else dialog.showModal();
  };

  // In the menu beside a heading or of a row arrows, Home and End go from entry to entry; when a dialog of one is closed, its button has the focus.
  const opener = (menu) => document.querySelector(`[popovertarget="${menu.id}"]`);
  document.addEventListener("keydown", (event) => {
    const menu = document.querySelector(".more-menu:popover-open");
    if (!menu) return;
    const entries = [...all(".btn", menu)].filter((entry) => entry.checkVisibility()), at = entries.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: Math.max(at, 0) - 1, Home: 0, End: -1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    entries.at(to % entries.length).focus();
  });
  document.addEventListener("close", (event) => {
    const openers = event.target.id ? [...all(`[commandfor="${event.target.id}"][command=show-modal]`)] : [];
    const menu = openers.map((one) => one.closest(".more-menu")).find(Boolean);
    if (menu && !openers.some((one) => one.checkVisibility())) opener(menu).focus();
  }, true);

  // The menu goes when its button has left the page's view: it would stand above the top bar.
  addEventListener("scroll", () => {
    const menu = document.querySelector(".more-menu:popover-open"), top = document.querySelector(".top");
    if (menu && opener(menu).getBoundingClientRect().bottom < top.getBoundingClientRect().bottom) menu.hidePopover();
  }, { passive: true });

  // Filters are sent as they change; a form is sent once.
  document.addEventListener("change", (event) => {
    if (event.target.matches(".filter-bar select")) event.target.form.requestSubmit();
    const rows = event.target.dataset.checkAll;
    if (rows) for (const box of document.getElementById(rows).elements) if (box.type === "checkbox") box.checked = event.target.checked;
  });
  // The days of a filter go away with a click beside them, or with Escape.
  document.addEventListener("click", (event) => {
    for (const days of all(".filter-days[open]")) if (!days.contains(event.target)) days.open = false;
  });
  document.addEventListener("keydown", (event) => {
    const days = event.key === "Escape" && event.target.closest(".filter-days[open]");
    if (days) { days.open = false; days.firstElementChild.focus(); }
  });
  document.addEventListener("submit", (event) => {
    if (event.target.method !== "post" || event.defaultPrevented) return;
    const form = event.target;
    if (form.dataset.sent === "reached") {
      form.dataset.sent = "yes";
      const buttons = [...form.elements].filter((one) => one.type === "submit" && !one.disabled);
      setTimeout(() => { for (const one of buttons) one.disabled = true; });  // once what is sent is gathered
      return;
    }
    event.preventDefault();
    if (form.dataset.sent) return;
    form.dataset.sent = "asked";
    event.submitter?.classList.add("btn-loading");
    reached().then((reachable) => {
      if (!reachable) { unreachable(form); return; }
      form.dataset.sent = "reached";
      form.requestSubmit(event.submitter);
    });
  });

  // While a file is dragged its field is marked; beside the field it would take the page's place.
  const dragging = (on) => document.documentElement.classList.toggle("dragging", on);
  const dragged = (event) => {
    if (!event.dataTransfer.types.includes("Files") || !document.querySelector(".drop")) return;
    if (!event.target.closest?.(".drop")) { event.preventDefault(); event.dataTransfer.dropEffect = "none"; }
    dragging(event.type === "dragover");
  };
  addEventListener("dragover", dragged);
  addEventListener("drop", dragged);
  addEventListener("dragleave", (event) => { if (!event.relatedTarget) dragging(false); });

  // A form leaves its page only where the service can be reached, so that without a network what was entered stays.
  const reached = async () => {
    try { return (await fetch("/console/sign-in/reachable", { method: "HEAD", cache: "no-store", signal: AbortSignal.timeout(8000) })).status < 500; } catch { return false; }
  };
  const unreachable = (form) => {
    delete form.dataset.sent;
    for (const button of all(".btn-loading", form)) button.classList.remove("btn-loading");
    let note = form.querySelector(".unreachable");
    if (!note) {
      note = document.createElement("div");
      note.className = "flash flash-bad unreachable";
      note.setAttribute("role", "alert");
      form.prepend(note);
    }
    note.textContent = "";
    setTimeout(() => { note.textContent = "No connection to the service: nothing was sent. What you entered is still here; send it again when the network is back."; });
  };

  // A form that was not sent is shown again in its dialog.
  for (const dialog of all("dialog[data-reopen]")) { dialog.removeAttribute("open"); dialog.showModal(); }
  // A link from another page leads to a dialog.
  const wanted = location.hash && document.getElementById(location.hash.slice(1));
  if (wanted instanceof HTMLDialogElement && !wanted.open) wanted.showModal();
  addEventListener("pageshow", () => {
    for (const form of all("form[data-sent]")) {
      delete form.dataset.sent;
      for (const one of form.elements) if (one.type === "submit") one.disabled = false;
    }
    for (const button of all(".btn-loading")) button.classList.remove("btn-loading");
  });

  // "/" goes to the search box.
  document.addEventListener("keydown", (event) => {
    const search = document.getElementById("search");
    if (event.key === "/" && search && !event.target.closest("input, textarea, select")) { event.preventDefault(); search.focus(); }
  });

  // A part that renews itself waits while somebody reads what was opened in it or chooses rows, a form is on its way
  // (its button would come back), or the page is not looked at.
  const waits = (event) => {
    const part = event.target;
    if (!part.matches?.("[hx-trigger^=every]")) return;
    if (document.hidden || document.querySelector("form[data-sent], .heading-actions dialog[open], .more-menu:popover-open") || part.querySelector("dialog[open], details[open], .pick :checked")) event.preventDefault();
  };
  document.addEventListener("htmx:before:request", waits);
  document.addEventListener("htmx:before:swap", waits);
  // What scrolls sideways can be scrolled by keyboard.
  const reachable = () => { for (const box of all(".table-responsive")) if (box.scrollWidth > box.clientWidth) box.tabIndex = 0; };
  // Rows that stand as cards say the name of each column; roles, as a browser forgets a table that is drawn otherwise.
  const named = (table) => {
    const names = [...table.tHead.rows[0].cells].map((cell) => (cell.querySelector(".visually-hidden") ? "" : cell.dataset.short ?? cell.textContent.replace(/[↑↓]/, "").trim().replace(/, [A-Z]{3}$/, "")));
    table.role = "table";
    for (const row of table.rows) {
      row.role = "row";
      for (const cell of row.cells) {
        cell.role = cell.tagName === "TH" ? "columnheader" : "cell";
        if (cell.tagName !== "TD") continue;
        cell.dataset.label = names[cell.cellIndex] ?? "";
        cell.classList.toggle("nothing", cell.textContent.trim() === "–");
      }
    }
  };
  const nameAll = () => { for (const table of all(".card-table:has(thead)")) named(table); };
  // A strip of tabs or of links to sections shows whether there are more to the right.
  for (const link of all(".list-tabs .nav-link.active")) link.closest(".nav").scrollLeft = link.offsetLeft - 24;  // on a phone tabs are one row
  const strips = () => { for (const strip of all(".sections .nav, .nav-pills")) strip.parentElement.classList.toggle("overflows", Math.abs(strip.scrollLeft) + strip.clientWidth < strip.scrollWidth - 4); };
  document.addEventListener("scroll", strips, { capture: true, passive: true });
  addEventListener("resize", strips);
  // Where tabs are a strip to be moved sideways, the chosen one is in sight.
  for (const chosen of all(".nav-pills .active")) {
    const strip = chosen.closest(".nav-pills");
    strip.scrollLeft = chosen.offsetLeft - strip.offsetLeft - (strip.clientWidth - chosen.offsetWidth) / 2;
  }
  // JSON has colours where a browser can give them to a text as it stands.
  const TOKEN = /("(?:[^"\\\n]|\\.)*")(\s*:)?|\b(?:true|false|null)\b|-?\b\d[\d.eE+-]*/g;
  const tint = () => {
    if (!CSS.highlights) return;
    const ranges = { name: [], text: [], value: [] };
    for (const box of all("pre")) {
      if (!/^\s*[{[]/.test(box.textContent)) continue;
      const texts = document.createTreeWalker(box, NodeFilter.SHOW_TEXT);
      for (let text = texts.nextNode(); text; text = texts.nextNode())
        for (const { 0: token, 1: quoted, 2: colon, index } of text.data.matchAll(TOKEN)) {
          const endOffset = index + (quoted ?? token).length;
          ranges[colon ? "name" : quoted ? "text" : "value"].push(new StaticRange({ startContainer: text, startOffset: index, endContainer: text, endOffset }));
        }
    }
    for (const [kind, found] of Object.entries(ranges)) CSS.highlights.set(`json-${kind}`, new Highlight(...found));
  };
  const renewed = () => { nameAll(); tellTimes(); reachable(); shareable(); strips(); tint(); };
  document.addEventListener("htmx:after:swap", renewed);
  renewed();
})();
