// What pages do beyond links and forms. Everything works without it, only less comfortably.
(() => {
  "use strict";
  const all = (selector, inside = document) => inside.querySelectorAll(selector);
  const two = (number) => String(number).padStart(2, "0");

  // Times in the reader's own zone; the server writes UTC and keeps it in the title.
  const written = (at) =>
    `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ` +
    `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  const localTimes = () => {
    for (const time of all("time[datetime]")) {
      const text = written(new Date(time.dateTime));
      if (time.textContent !== text) time.textContent = text;
    }
  };

  // Charts: numbers from the page, colours from the theme. A canvas knows no light-dark(), so an element resolves them.
  const colour = (name) => {
    const probe = document.createElement("span");
    probe.hidden = true;
    probe.className = name;
    document.body.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  };
  const hour = (seconds) => { const text = written(new Date(seconds * 1000)); return text.endsWith("00:00:00") ? text.slice(5, 10) : text.slice(11, 16); };
  const plots = new Map();
  const draw = (box) => {
    plots.get(box)?.destroy();
    const { times, series, unit } = JSON.parse(box.dataset.chart);
    const axis = { stroke: colour("paint-text"), grid: { stroke: colour("paint-line"), width: 1 }, ticks: { show: false }, font: "12px Inter" };
    const lines = series.map(([label], at) => ({
      label, stroke: colour(`paint-${at + 1}`), width: 2, points: { show: false },
      value: (_, number) => (number == null ? "–" : `${number.toLocaleString("en")}${unit ? " " + unit : ""}`),
    }));
    const options = {
      width: box.clientWidth, height: 240, cursor: { y: false },
      axes: [{ ...axis, size: 32, values: (_, ticks) => ticks.map(hour) }, { ...axis, size: 64 }], series: [{ value: (_, at) => (at == null ? "–" : written(new Date(at * 1000))) }, ...lines],
      scales: { y: { range: (_, low, high) => [Math.min(0, low), high > 0 ? high * 1.1 : 1] } },
    };
    plots.set(box, new uPlot(options, [times, ...series.map(([, numbers]) => numbers)], box));
  };
  const drawAll = () => {
    for (const box of plots.keys()) if (!box.isConnected) { plots.get(box).destroy(); plots.delete(box); }
    for (const box of all("[data-chart]")) if (!plots.has(box) || !box.firstElementChild) draw(box);
  };

  const copy = async (button) => {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.classList.add("done");
    setTimeout(() => button.classList.remove("done"), 1500);
  };

  document.addEventListener("click", (event) => {
    const target = event.target.closest("[data-copy], [data-theme-switch], [data-print], button[commandfor], tr[data-href]");
    if (!target) return;
    if (target.matches("[data-copy]")) copy(target);
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

  // Filters are sent as they change; a form is sent once.
  document.addEventListener("change", (event) => {
    if (event.target.matches("form.filters select, form.filters input[type=date], form.filters input[type=checkbox]")) event.target.form.requestSubmit();
  });
  document.addEventListener("submit", (event) => {
    if (event.target.method !== "post" || event.defaultPrevented) return;
    if (event.target.dataset.sent) { event.preventDefault(); return; }
    event.target.dataset.sent = "yes";
    event.submitter?.classList.add("btn-loading");
    const buttons = [...event.target.elements].filter((one) => one.type === "submit" && !one.disabled);
    setTimeout(() => { for (const one of buttons) one.disabled = true; });  // once what is sent is gathered
  });
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

  // A part that renews itself waits while somebody reads what was opened in it, a form is on its way (its button would
  // come back), or the page is not looked at.
  const waits = (event) => {
    const part = event.target;
    if (!part.matches?.("[hx-trigger^=every]")) return;
    if (document.hidden || document.querySelector("form[data-sent]") || part.querySelector("dialog[open], details[open]")) event.preventDefault();
  };
  document.addEventListener("htmx:before:request", waits);
  document.addEventListener("htmx:before:swap", waits);
  // What scrolls sideways can be scrolled by keyboard.
  const reachable = () => { for (const box of all(".table-responsive")) if (box.scrollWidth > box.clientWidth) box.tabIndex = 0; };
  const renewed = () => { localTimes(); drawAll(); reachable(); };
  document.addEventListener("htmx:after:swap", renewed);
  document.addEventListener("theme", () => { for (const box of plots.keys()) draw(box); });
  addEventListener("resize", () => { for (const [box, plot] of plots) plot.setSize({ width: box.clientWidth, height: 240 }); });
  renewed();
})();
