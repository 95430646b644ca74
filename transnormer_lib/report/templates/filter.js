"use strict";
// The ledger's search and filters; the address keeps them: ledger.html#verdict=refuted&paper=gau. What is searched for
// unfolds. Without scripts the page has every claim, in folds.
{
  const form = document.querySelector("form.filter");
  const rows = [...document.querySelectorAll("table.claims tbody tr")];
  const groups = [...document.querySelectorAll(".group")];
  const folds = groups.filter((group) => group.tagName === "DETAILS");
  const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
  const fields = [...form.querySelectorAll("select, input")];

  let filtered = false;
  const apply = () => {
    const words = form.elements.words.value.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = fields.filter((field) => field.tagName === "SELECT" && field.value);
    // A claim may bear on several theses.
    const has = (row, { name, value }) => name === "thesis"
      ? row.dataset.thesis.split(" ").includes(value) : row.dataset[name] === value;
    let left = 0;
    for (const row of rows) {
      const fits = chosen.every((field) => has(row, field)) && words.every((word) => texts.get(row).includes(word));
      row.hidden = !fits;
      left += fits;
    }
    for (const group of groups) group.hidden = !group.querySelector("table.claims tbody tr:not([hidden])");
    // Folds follow the filter; without one they are the reader's.
    const asked = chosen.length + words.length > 0;
    if (asked || filtered) for (const fold of folds) fold.open = asked;
    filtered = asked;
    form.querySelector("output").textContent = `${left} of ${rows.length}`;
  };
  const write = () => {
    const kept = new URLSearchParams(fields.filter((field) => field.value).map((field) => [field.name, field.value]));
    history.replaceState(null, "", `#${kept}`);
  };
  // An address with "=" is a filter; any other leads to a claim, which must not be hidden.
  const read = () => {
    const text = location.hash.slice(1);
    const asked = new URLSearchParams(text.includes("=") ? text : "");
    for (const field of fields) field.value = asked.get(field.name) ?? "";
    apply();
    const target = text && !text.includes("=") ? document.getElementById(decodeURIComponent(text)) : null;
    const fold = target?.closest("details");
    if (fold) fold.open = true;
    target?.scrollIntoView();
  };

  form.hidden = false;
  form.addEventListener("input", () => { write(); apply(); });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(() => { write(); apply(); }));
  addEventListener("hashchange", read);
  read();
}
