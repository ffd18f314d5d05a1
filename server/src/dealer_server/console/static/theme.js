// What has to be known about looks before anything is drawn: light or dark.
(() => {
  document.documentElement.classList.add("scripted"); // buttons that need scripts have their place from the start

  // What was chosen here, else what the system says.
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
  const apply = (theme) => {
    document.documentElement.setAttribute("data-bs-theme", theme);
  };
  const followed = () => apply(chosen() ?? (dark.matches ? "dark" : "light"));
  followed();
  dark.addEventListener("change", followed);
  window.switchTheme = () => {
    const next = document.documentElement.getAttribute("data-bs-theme") === "dark" ? "light" : "dark";
    try { localStorage.setItem("theme", next); } catch { /* then it lasts for this page */ }
    apply(next);
  };
})();
