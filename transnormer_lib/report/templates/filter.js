"use strict";
// The ledger's search and filters; the address keeps them: ledger.html#verdict=refuted&paper=gau. Without scripts the
// page shows every claim.
{
  const form = document.querySelector("form.filter");
  const rows = [...document.querySelectorAll("table.claims tbody tr")];
  const groups = [...document.querySelectorAll("section.group")];
  const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
  const fields = [...form.querySelectorAll("select, input")];

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
    if (text && !text.includes("=")) document.getElementById(decodeURIComponent(text))?.scrollIntoView();
  };

  form.hidden = false;
  form.addEventListener("input", () => { write(); apply(); });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(() => { write(); apply(); }));
  addEventListener("hashchange", read);
  read();
}
