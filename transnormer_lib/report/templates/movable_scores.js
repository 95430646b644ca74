"use strict";
// One row of attention scores: its weights, and the largest derivative of a weight by a score (Equations 8, 10 and 52),
// as studies/gradient_theory/row_of_scores.py computes them.
{
  const { axes, group, key, line, live, marker, panel, plain, range, shown, sum, tens, text } = movable;
  const largest = (n, entry) => {
    let found = 0;
    for (let j = 0; j < n; j++) for (let k = 0; k < n; k++) found = Math.max(found, Math.abs(entry(j, k)));
    return found;
  };
  const attentions = {
    softmax: (s) => {
      const top = Math.max(...s), powers = s.map((x) => Math.exp(x - top)), p = powers.map((x) => x / sum(powers));
      return { weights: p, derivative: largest(s.length, (j, k) => (j === k) * p[j] - p[j] * p[k]) };
    },
    linear: (s) => {
      const total = sum(s), p = s.map((x) => x / total);
      return { weights: p, derivative: largest(s.length, (j, k) => ((j === k) - p[j]) / total) };
    },
    norm: (s, eps) => {
      const root = Math.sqrt(sum(s.map((x) => x * x)) / s.length + eps), o = s.map((x) => x / root);
      return { weights: o, derivative: largest(s.length, (j, k) => ((j === k) - (o[j] * o[k]) / s.length) / root) };
    },
  };

  movable.draw("scores", ({ scores, size, eps, sizes: [least, most], epsilons, styles }) => {
    const names = Object.keys(styles), n = scores.length, said = live(), factored = "all scores times";
    const at = (power) => each.map((one) => 10 ** power * one.value);
    const now = () => names.map((name) => [name, attentions[name](at(factor.value), 10 ** epsilon.value)]);
    const bound = () => 10 ** (-epsilon.value / 2);

    const weights = panel(205, (width, height) => {
      const found = now();
      const { nodes, X, Y, bottom } = axes(width, height, "weights",
        { low: 0.5, high: n + 0.5, ticks: each.map((_, j) => [j + 1, j + 1]), label: "key" },
        { low: 0, high: Math.sqrt(n), ticks: [0, 0.5, 1, 1.5, 2].map((value) => [value, value]) });
      const apart = Math.min(14, (X(2) - X(1)) / (names.length + 1));
      found.forEach(([name, own], place) => own.weights.forEach((weight, j) => {
        const x = X(j + 1) + (place - (names.length - 1) / 2) * apart;
        nodes.push(line(styles[name], [[x, bottom], [x, Y(weight)]]), marker(styles[name], x, Y(weight)));
      }));
      const words = found.map(([name, own]) => `${styles[name].label} ${own.weights.map(shown).join(", ")}`);
      return { nodes, label: `Weights of the ${n} keys. ${words.join("; ")}.` };
    });

    const derivatives = panel(205, (width, height) => {
      const { nodes, X, Y, left, right } = axes(width, height, "largest derivative",
        { low: 10 ** least, high: 10 ** most, log: true, ticks: tens(least, most, width < 400 ? 2 : 1), label: factored },
        { low: 1e-3, high: 1e7, log: true, ticks: tens(-3, 7, 2), label: "largest |∂p / ∂s|" });
      for (const [value, words] of [[0.25, "1/4"], [bound(), "1/√ε"]]) {
        nodes.push(plain("tn-bound", [[left, Y(value)], [right, Y(value)]]), text(left + 4, Y(value) - 4, words, "start"));
      }
      const powers = Array.from({ length: 71 }, (_, i) => least + (i * (most - least)) / 70);
      for (const name of names) {
        nodes.push(line(styles[name], powers.map((power) =>
          [X(10 ** power), Y(attentions[name](at(power), 10 ** epsilon.value).derivative)])));
      }
      for (const [name, own] of now()) nodes.push(marker(styles[name], X(10 ** factor.value), Y(own.derivative), 7));
      return { nodes, label: `Largest derivative against the size of all scores. ${said.textContent}` };
    });

    const changed = () => {
      const limit = { softmax: "never above 1/4", linear: "no bound", norm: `never above 1/√ε = ${shown(bound())}` };
      const words = now().map(([name, own]) => `${styles[name].label}: ${shown(own.derivative)} (${limit[name]})`);
      const top = shown(Math.max(...at(factor.value)));
      said.textContent = `Scores up to ${top}. Largest derivative of a weight by a score, ${words.join("; ")}.`;
      weights.repaint();
      derivatives.repaint();
    };
    const each = scores.map((value, j) => range(`score ${j + 1}`, [0.01, 1, 0.01], value, shown, changed));
    const factor = range(factored, [least, most, 0.1], size, (x) => shown(10 ** x), changed);
    const epsilon = range("RMSNorm’s ε", [...epsilons, 1], eps, (x) => shown(10 ** x), changed);
    changed();
    return [group("tn-panels", weights.node, derivatives.node), key(names.map((name) => styles[name])), said,
      group("tn-fields", factor.node, epsilon.node, ...each.map((one) => one.node))];
  });
}
