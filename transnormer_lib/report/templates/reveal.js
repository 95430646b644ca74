"use strict";
// A link into something folded unfolds it.
{
  const reveal = () => {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    const folded = target.dataset.row ? document.getElementById(target.dataset.row) : target;
    for (let node = folded; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
    folded.querySelector("details")?.setAttribute("open", "");
    folded.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  reveal();
}
