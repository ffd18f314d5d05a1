(() => {
  "use strict";
  for (const time of document.querySelectorAll("time[datetime]"))
    time.textContent = new Date(time.dateTime).toLocaleString(document.documentElement.lang, { year: "numeric", month: "short", day: "numeric", hour: "numeric", minute: "2-digit", timeZoneName: "short" });
  if (!navigator.clipboard) return;
  for (const button of document.querySelectorAll("[data-copy]")) {
    const words = button.textContent;
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = button.dataset.done;
      button.classList.add("done");
      setTimeout(() => { button.textContent = words; button.classList.remove("done"); }, 1600);
    });
  }
})();
