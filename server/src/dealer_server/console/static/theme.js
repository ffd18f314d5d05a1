// Light or dark, before anything is drawn: what was chosen here, else what the system says.
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
  const apply = () => document.documentElement.setAttribute("data-bs-theme", chosen() ?? (dark.matches ? "dark" : "light"));
  apply();
  dark.addEventListener("change", apply);
  window.switchTheme = () => {
    const next = document.documentElement.getAttribute("data-bs-theme") === "dark" ? "light" : "dark";
    try { localStorage.setItem("theme", next); } catch { /* then it lasts for this page */ }
    document.documentElement.setAttribute("data-bs-theme", next);
    document.dispatchEvent(new Event("theme"));
  };
})();
