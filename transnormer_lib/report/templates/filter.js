"use strict";
// The ledger's search and filters. Without scripts the page shows every claim.
{
  const form = document.querySelector("form.filter");
  const rows = [...document.querySelectorAll("table.claims tbody tr")];
  const groups = [...document.querySelectorAll("section.group")];
  const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
  const apply = () => {
    const words = form.elements.words.value.toLowerCase().split(/\s+/).filter(Boolean);
    const chosen = ["verdict", "kind", "notebook"].map((name) => [name, form.elements[name].value]);
    let left = 0;
    for (const row of rows) {
      const fits = chosen.every(([name, value]) => !value || row.dataset[name] === value)
        && words.every((word) => texts.get(row).includes(word));
      row.hidden = !fits;
      left += fits;
    }
    for (const group of groups) group.hidden = !group.querySelector("table.claims tbody tr:not([hidden])");
    form.querySelector("output").textContent = `${left} of ${rows.length}`;
  };
  form.hidden = false;
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  apply();
}
