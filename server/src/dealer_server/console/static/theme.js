// What has to be known about looks before anything is drawn: light or dark, and what a cell is called on a phone.
(() => {
  document.documentElement.classList.add("scripted"); // buttons that need scripts have their place from the start

  // What was chosen here, else what the system says.
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
  const apply = (theme) => {
    document.documentElement.setAttribute("data-bs-theme", theme);
    document.dispatchEvent(new Event("theme"));
  };
  const followed = () => apply(chosen() ?? (dark.matches ? "dark" : "light"));
  followed();
  dark.addEventListener("change", followed);
  window.switchTheme = () => {
    const next = document.documentElement.getAttribute("data-bs-theme") === "dark" ? "light" : "dark";
    try { localStorage.setItem("theme", next); } catch { /* then it lasts for this page */ }
    apply(next);
  };

  // Rows that stand as cards say the name of each column; roles, as a browser forgets a table that is drawn otherwise.
  const named = (table) => {
    const names = [...table.tHead.rows[0].cells].map((cell) => (cell.querySelector(".visually-hidden") ? "" : cell.textContent.replace(/[↑↓]/, "").trim()));
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
  const nameAll = () => { for (const table of document.querySelectorAll(".card-table:has(thead)")) named(table); };
  document.addEventListener("DOMContentLoaded", nameAll);
  document.addEventListener("htmx:after:swap", nameAll);
})();
