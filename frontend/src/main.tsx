/** Entry of the bundle. A report is readable as it stands; this adds charts, copy buttons and the choice of theme. */
import { render } from "preact";
import { type Charts, decode, oneOf, type Several } from "./data";
import { Explorer, markPlace } from "./explorer";
import { Studio } from "./studio/app";

/** A button after every line of code that a reader may want to run. */
function addCopyButtons(): void {
  for (const code of document.querySelectorAll<HTMLElement>(".calibrant .command code")) {
    const button = Object.assign(document.createElement("button"), { type: "button", textContent: "Copy" });
    button.addEventListener("click", () => {
      void navigator.clipboard?.writeText(code.textContent ?? "").then(() => {
        button.textContent = "Copied";
        setTimeout(() => { button.textContent = "Copy"; }, 1500);
      });
    });
    code.after(button);
  }
}

/** A button that switches between light and dark; until used, the page follows the reader's system. */
function addThemeButton(): void {
  const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  const button = Object.assign(document.createElement("button"), { type: "button", className: "theme" });
  const name = () => { button.textContent = isDark() ? "Light" : "Dark"; button.setAttribute("aria-label", isDark() ? "Use light colours" : "Use dark colours"); };
  button.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; name(); });
  dark.addEventListener("change", name);
  name();
  document.querySelector(".calibrant header")?.append(button);
}

function draw(charts: Charts, place: Element): void {
  place.replaceChildren();
  markPlace(place, charts);
  render(<Explorer charts={charts} />, place);
}

/** Show the one of several reports that the address names, or the first; the others are drawn when they are chosen. */
function addSwitch(several: Several): void {
  const reports = [...document.querySelectorAll<HTMLElement>("article[id^=report-]")];
  const show = () => {
    const chosen = reports.find((report) => `#${report.id}` === location.hash) ?? reports[0], charts = oneOf(several, chosen.id);
    for (const report of reports) {
      const place = report.querySelector("main");
      report.hidden = report !== chosen;
      if (place) render(null, place); // buttons of equal names in two reports would exclude each other
      if (place && charts && report === chosen) draw(charts, place);
    }
    for (const link of document.querySelectorAll(".switch a")) {
      if (link.getAttribute("href") === `#${chosen.id}`) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    scrollTo(0, 0);
  };
  addEventListener("hashchange", show);
  show();
}

const data = document.getElementById("calibrant-data");
if (data) {
  addThemeButton();
  addCopyButtons();
  decode(data.textContent ?? "").then((charts) => ("reports" in charts ? addSwitch(charts) : draw(charts, document.getElementById("calibrant-charts")!))).catch((error: unknown) => {
    for (const place of document.querySelectorAll(".calibrant main")) place.append(Object.assign(document.createElement("p"), { className: "legend", textContent: `The charts cannot be drawn: ${String(error)}. All numbers are below.` }));
  });
}

const studio = document.getElementById("calibrant-studio");
if (studio) {
  render(<Studio />, studio);
  addThemeButton();
}
