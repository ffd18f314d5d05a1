(() => {
  "use strict";
  const language = document.documentElement.lang === "en" ? "en-GB" : document.documentElement.lang; // 28 May 2027
  for (const time of document.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    const day = at.toLocaleDateString(language, { year: "numeric", month: "long", day: "numeric" });
    time.textContent = "day" in time.dataset ? day : `${day}, ${at.toLocaleTimeString(language, { hour: "2-digit", minute: "2-digit" })}`;
  }
  if (Intl.DisplayNames) { // phones of before 2021 have none: their countries stay in English
    const places = new Intl.DisplayNames([language], { type: "region" });
    for (const place of document.querySelectorAll("[data-region]")) place.textContent = places.of(place.dataset.region);
  }
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
