"use strict";
// What figures that a visitor can move (show/movable.py) share: controls, panels, axes, lines in the house's styles.
// All of it is made here, so that without scripts, and on paper, the still picture stands alone.
const movable = (() => {
  const made = (create) => (name, attributes = {}, ...inner) => {
    const one = create(name);
    for (const [key, value] of Object.entries(attributes)) one.setAttribute(key, value);
    one.append(...inner);
    return one;
  };
  const html = made((name) => document.createElement(name));
  const svg = made((name) => document.createElementNS("http://www.w3.org/2000/svg", name));
  const group = (name, ...inner) => html("div", { class: name }, ...inner);
  const live = () => html("div", { class: "tn-live", "aria-live": "polite" });
  const sum = (values) => values.reduce((a, b) => a + b, 0);

  // Numbers as the pages write them: true minus signs, powers of ten where there would be many digits.
  const power = (n) => `10${String(n).replace(/./g, (c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c]))}`;
  const shown = (x) => {
    const [front, exponent] = x.toExponential(2).split("e");
    if (x && (exponent < -3 || exponent > 5)) {
      return `${Number(front) === 1 ? "" : `${front.replace("-", "−")} · `}${power(Number(exponent))}`;
    }
    return x.toLocaleString("en", { maximumSignificantDigits: 3 }).replace("-", "−");
  };

  // Controls: a native range or list below its name; a range says its value in words.
  let controls = 0;
  const field = (name, control, ...more) => {
    control.id = `move-${++controls}`;
    return group("tn-field", html("label", { for: control.id }, name), ...more, control);
  };
  const range = (name, [low, high, step], start, say, changed) => {
    const input = html("input", { type: "range", min: low, max: high, step, value: start });
    const said = html("span", { class: "tn-set", "aria-hidden": "true" });
    const speak = () => {
      said.textContent = say(Number(input.value));
      input.setAttribute("aria-valuetext", said.textContent);
    };
    input.addEventListener("input", () => { speak(); changed(); });
    speak();
    return { node: field(name, input, said), get value() { return Number(input.value); } };
  };
  const choice = (name, texts, start, changed) => {
    const select = html("select");
    const fill = (list, chosen) => {
      select.replaceChildren(...list.map((text, number) => html("option", { value: number }, text)));
      select.value = Math.min(chosen, list.length - 1);
    };
    fill(texts, start);
    select.addEventListener("change", changed);
    return { node: field(name, select), fill, get value() { return Number(select.value); } };
  };

  // A panel is an SVG as wide as its place, painted again when that changes. ``paint`` gives its label and its nodes.
  const panel = (height, paint) => {
    const root = svg("svg", { role: "img", height });
    const repaint = () => {
      const width = Math.max(Math.round(root.getBoundingClientRect().width), 160);
      root.setAttribute("viewBox", `0 0 ${width} ${height}`);
      const { label, nodes } = paint(width, height);
      root.setAttribute("aria-label", label);
      root.replaceChildren(...nodes);
    };
    new ResizeObserver(repaint).observe(root);
    return { node: root, repaint };
  };
  const text = (x, y, words, anchor = "middle", more = {}) => svg("text", { x, y, "text-anchor": anchor, ...more }, words);
  const axis = (d) => svg("path", { class: "tn-axis", d });

  // Axes for x and y: {low, high, log, ticks: [[place, words]], label}. What lies beyond an end is drawn at it.
  const MARGIN = { left: 50, right: 14, top: 20, bottom: 40 };
  const axes = (width, height, title, x, y) => {
    const left = MARGIN.left, right = width - MARGIN.right, top = MARGIN.top, bottom = height - MARGIN.bottom;
    const onto = ({ low, high, log }, from, to) => {
      const place = log ? Math.log10 : (value) => value, scale = (to - from) / (place(high) - place(low));
      return (value) => from + (place(Math.min(Math.max(value, low), high)) - place(low)) * scale;
    };
    const X = onto(x, left, right), Y = onto(y, bottom, top), middle = (top + bottom) / 2;
    const nodes = [axis(`M${left} ${top}V${bottom}H${right}`), text((left + right) / 2, 12, title),
      text((left + right) / 2, height - 5, x.label)];
    for (const [at, words] of x.ticks) nodes.push(axis(`M${X(at)} ${bottom}v4`), text(X(at), bottom + 17, words));
    for (const [at, words] of y.ticks) nodes.push(axis(`M${left - 4} ${Y(at)}h4`), text(left - 7, Y(at) + 4, words, "end"));
    if (y.label) nodes.push(text(11, middle, y.label, "middle", { transform: `rotate(-90 11 ${middle})` }));
    return { nodes, X, Y, left, right, top, bottom };
  };
  const tens = (low, high, step) => {
    const ticks = [];
    for (let n = low; n <= high; n += step) ticks.push([10 ** n, n === 0 ? "1" : n === 1 ? "10" : power(n)]);
    return ticks;
  };

  // A marker is a polygon or a star, by its corners, its turn, and of a star the inner radius.
  const MARKERS = {
    o: [24, 0], s: [4, 45], D: [4, 0], d: [4, 0], "^": [3, 0], v: [3, 180], "<": [3, -90], ">": [3, 90], p: [5, 0], h: [6, 0],
    H: [6, 30], 8: [8, 22], X: [4, 45, 0.4], P: [4, 0, 0.4], x: [4, 45, 0.2], "+": [4, 0, 0.2], "*": [5, 0, 0.45],
  };
  const ink = ({ colour: [light, dark] }) => `--light:${light};--dark:${dark}`;
  const marker = (style, x, y, size = 5) => {
    const [corners, turn, inner] = MARKERS[style.marker] ?? MARKERS.o, count = inner ? 2 * corners : corners;
    const points = Array.from({ length: count }, (_, n) => {
      const angle = ((turn + (360 * n) / count - 90) * Math.PI) / 180, far = inner && n % 2 ? size * inner : size;
      return `${(x + far * Math.cos(angle)).toFixed(1)},${(y + far * Math.sin(angle)).toFixed(1)}`;
    });
    return svg("polygon", { class: "tn-marker", points: points.join(" "), style: ink(style) });
  };
  const path = (places) => places.map(([x, y], n) => `${n ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
  const line = (style, places, wide = 1.8) => svg("path", {
    class: "tn-line", d: path(places), "stroke-width": wide, "stroke-dasharray": style.dashes.join(" ") || "none", style: ink(style),
  });
  const plain = (name, places) => svg("path", { class: name, d: path(places) }); // a line that is no mechanism's
  const entry = (words, ...nodes) =>
    html("li", {}, svg("svg", { width: 30, height: 12, "aria-hidden": "true" }, ...nodes), ` ${words}`);
  const key = (styles, ...more) => html("ul", { class: "tn-key" }, ...styles.map((style) =>
    entry(style.label, line(style, [[0, 6], [30, 6]]), marker(style, 15, 6, 4))), ...more);

  // Draw every figure of a kind from its data.
  const draw = (kind, parts) => {
    for (const figure of document.querySelectorAll(`figure[data-movable="${kind}"]`)) {
      const moves = group(`tn-moves tn-${kind}`, ...parts(JSON.parse(figure.dataset.values)));
      moves.setAttribute("role", "group");
      moves.setAttribute("aria-label", "The figure, to be moved");
      figure.querySelector("figcaption").before(moves);
      figure.classList.add(figure.hasAttribute("data-beside") ? "tn-beside" : "tn-instead");
    }
  };
  return { html, group, live, sum, shown, svg, range, choice, panel, text, axes, tens, marker, line, plain, entry, key, draw };
})();
