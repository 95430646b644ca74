"use strict";
// A notebook's page: the contents follow the reader, one switch unfolds all code, code can be copied. Without scripts
// everything can be read, by <details> and plain links.
{
  const all = (selector) => [...document.querySelectorAll(selector)];
  const stored = {
    get: () => { try { return localStorage.getItem("companion-code"); } catch { return null; } },
    set: (value) => { try { localStorage.setItem("companion-code", value); } catch { /* private windows keep nothing */ } },
  };

  // One switch for the code of this page and of those opened later.
  const codes = all("details.code");
  const toggle = document.querySelector(".code-switch");
  const unfold = (open) => {
    for (const code of codes) code.open = open;
    toggle.setAttribute("aria-pressed", String(open));
  };
  if (codes.length) {
    toggle.hidden = false;
    if (stored.get() === "open") unfold(true);
    toggle.addEventListener("click", () => {
      const open = toggle.getAttribute("aria-pressed") !== "true";
      unfold(open);
      stored.set(open ? "open" : "folded");
    });
  }

  // A copy button on each block of code.
  for (const code of codes) {
    const pre = code.querySelector("pre");
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.addEventListener("click", () => copy(pre.textContent).then(
      () => { button.textContent = "Copied"; },
      () => { button.textContent = "Not copied"; },
    ));
    code.append(button);
  }
  // A page opened from a file has no clipboard in some browsers; a selection can be copied in all.
  const copy = async (text) => {
    if (navigator.clipboard) return navigator.clipboard.writeText(text);
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    if (!copied) throw new Error("refused");
  };

  // The entry of the part that is being read is marked, and stays in sight.
  const entries = new Map();
  for (const link of all(".contents a")) {
    const heading = document.getElementById(decodeURIComponent(link.hash.slice(1)));
    if (heading) entries.set(heading, [...(entries.get(heading) ?? []), link]);
  }
  const mark = () => {
    let here = null;
    for (const heading of entries.keys()) if (heading.getBoundingClientRect().top < innerHeight / 4) here = heading;
    for (const [heading, links] of entries) {
      for (const link of links) {
        if (heading !== here) link.removeAttribute("aria-current");
        else if (!link.hasAttribute("aria-current")) {
          link.setAttribute("aria-current", "location");
          const list = link.closest(".contents.wide");
          if (list) list.scrollTop = link.offsetTop - list.clientHeight / 2;
        }
      }
    }
  };
  // The contents that lie over a narrow page fold when one has chosen.
  for (const link of all(".contents.narrow a")) {
    link.addEventListener("click", () => { link.closest("details").open = false; });
  }
  let waiting = false;
  addEventListener("scroll", () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; mark(); });
  }, { passive: true });
  mark();

  // Only regions that do scroll are stops of the keyboard.
  const regions = all("[tabindex='0']");
  const stops = () => {
    for (const region of regions) region.tabIndex = region.scrollWidth > region.clientWidth + 1
      || region.scrollHeight > region.clientHeight + 1 ? 0 : -1;
  };
  addEventListener("resize", stops);
  for (const fold of all("details")) fold.addEventListener("toggle", stops);
  stops();
}
