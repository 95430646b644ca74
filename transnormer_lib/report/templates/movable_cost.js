"use strict";
// Cost by length: exact operations of a forward pass at a width, and the times measured at the recipe's width, from the
// data of studies/speed/costs.py.
{
  const { axes, choice, group, html, key, line, live, marker, panel, plain, range, shown, tens } = movable;
  const whole = (x) => x.toLocaleString("en");
  const operations = ([squared, linear, constant, blocks], block, n) => squared * n * n + linear * n + constant
    + blocks * (Math.floor(n / block) * block * block + (n % block) ** 2);
  // Between neighbouring measured lengths a power of the length; null beyond them.
  const between = (points, n) => {
    const after = points.findIndex(([length]) => length >= n);
    if (after < 0 || points[0][0] > n) return null;
    const [b, high] = points[after];
    if (b === n) return high;
    const [a, low] = points[after - 1];
    return low * (high / low) ** (Math.log(n / a) / Math.log(b / a));
  };

  movable.draw("cost", ({ rows, block, widths, width: own, lengths: [least, most], fewer, parts }) => {
    const softmax = rows[0], ours = rows[rows.length - 1], said = live();
    const n = () => Math.round(2 ** length.value), wide = () => widths[width.value];
    const counted = (one, tokens = n()) => operations(one.operations[wide()], block, tokens);
    const short = (tokens) => (tokens % 1024 ? tokens : `${tokens / 1024}K`);
    const marks = Array.from({ length: 1 + Math.floor(Math.log2(most / least) / 3) }, (_, i) => least * 8 ** i);
    const steps = Array.from({ length: 65 }, (_, i) => Math.round(least * (most / least) ** (i / 64)));

    // A panel of powers of ten; ``values`` gives of a row its points, and the value at the chosen length or null.
    const drawn = (title, [floor, top], size, values) => panel(205, (width, height) => {
      const { nodes, X, Y, top: above, bottom } = axes(width, height, title,
        { low: least, high: most, log: true, ticks: marks.map((tokens) => [tokens, short(tokens)]), label: "tokens" },
        { low: 10 ** floor, high: 10 ** top, log: true, ticks: tens(floor, top, top - floor > 5 ? 3 : 1) });
      nodes.push(plain("tn-bound", [[X(n()), above], [X(n()), bottom]]));
      for (const one of [...rows].reverse()) { // dashes above a solid line that they would be lost under
        const { points, here } = values(one);
        nodes.push(line(one, points.map(([tokens, value]) => [X(tokens), Y(value)])));
        if (size) nodes.push(...points.map(([tokens, value]) => marker(one, X(tokens), Y(value), size)));
        if (here !== null) nodes.push(marker(one, X(n()), Y(here), 6));
      }
      return { nodes, label: `${title} against the length. ${said.textContent}` };
    });
    const exact = drawn("operations, forward pass", [5, 14], 0,
      (one) => ({ here: counted(one), points: steps.map((tokens) => [tokens, counted(one, tokens)]) }));
    const milliseconds = (one, part) => one.seconds[part].map(([tokens, seconds]) => [tokens, 1e3 * seconds]);
    const all = rows.flatMap((one) => parts.flatMap((part) => milliseconds(one, part).map(([, value]) => value)));
    const ends = all.length ? [Math.floor(Math.log10(Math.min(...all))), Math.ceil(Math.log10(Math.max(...all)))] : [0, 1];
    const times = parts.map((part) => drawn(`${part}, ms, width ${own}`, ends, 3,
      (one) => ({ here: between(milliseconds(one, part), n()), points: milliseconds(one, part) })));

    const measured = (part) => {
      const found = rows.map((one) => [one.label, between(milliseconds(one, part), n())]).filter(([, value]) => value !== null);
      return `${part} ${found.map(([name, value]) => `${name}: ${shown(value)}`).join("; ") || "not measured at this length"}`;
    };
    const changed = () => {
      const from = fewer[wide()], ratio = shown(counted(ours) / counted(softmax));
      const counts = rows.map((one) => `${one.label}: ${whole(counted(one))}`).join("; ");
      said.replaceChildren(
        html("p", {}, `${whole(n())} tokens. Operations at width ${wide()}, ${counts}. ${ours.label} needs ${ratio} times those`
          + ` of ${softmax.label}${from === null ? "." : `, and fewer from ${whole(from)} tokens on.`}`),
        html("p", {}, `Milliseconds at width ${own}, in ${parts.map(measured).join(". In ")}.`),
      );
      for (const one of [exact, ...times]) one.repaint();
    };
    const length = range("tokens", [Math.log2(least), Math.log2(most), 0.125], 10, (x) => whole(Math.round(2 ** x)), changed);
    const width = choice("width (2 heads)", widths.map(String), widths.indexOf(own), changed);
    length.node.classList.add("tn-wide");
    changed();
    const panels = group("tn-panels", exact.node, ...times.map((one) => one.node));
    return [group("tn-fields", length.node, width.node), panels, key(rows), said];
  });
}
