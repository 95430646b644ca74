"use strict";
// Attention maps by model, layer and head, each with its curve of accumulated attention (Appendix F), from the data that
// studies/attention_dilution/heads.py packs.
{
  const { axes, choice, entry, group, html, key, line, live, marker, panel, plain, shown, sum, svg } = movable;
  const bytes = (packed) => Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
  const mean = (list, value) => sum(list.map(value)) / list.length;

  movable.draw("maps", ({ models, tokens, side, causal, alike, colours }) => {
    const cells = causal ? (side * (side + 1)) / 2 : side * side, levels = alike.length, said = live();
    for (const one of models) {
      one.cells = bytes(one.maps);
      one.curves = new DataView(bytes(one.sizes).buffer);
    }
    // The heads asked for, by their places among all heads of the model: one of a layer, or all.
    const heads = (one) => {
      const first = sum(one.heads.slice(0, layer.value));
      return head.value ? [first + head.value - 1] : Array.from({ length: one.heads[layer.value] }, (_, h) => first + h);
    };
    const curve = (one) => alike.map((_, level) =>
      mean(heads(one), (h) => one.curves.getUint16(2 * (h * levels + level), true) / 65535));
    const area = (sizes) => 1 - (sum(sizes) - (sizes[0] + sizes[levels - 1]) / 2) / (levels - 1);
    const where = () => `layer ${layer.value + 1}, ${head.value ? `head ${head.value}` : "mean of the heads"}`;

    const picture = (one) => {
      const canvas = html("canvas", { width: side, height: side }), ground = canvas.getContext("2d");
      const list = heads(one), weights = Array.from({ length: cells }, (_, cell) =>
        mean(list, (h) => one.largest[h] * (one.cells[h * cells + cell] / 255) ** 2));
      const top = Math.max(...weights);
      for (let i = 0, cell = 0; i < side; i++) for (let j = 0; j < (causal ? i + 1 : side); j++, cell++) {
        ground.fillStyle = colours[Math.round(Math.sqrt(weights[cell] / (top || 1)) * (colours.length - 1))];
        ground.fillRect(j, i, 1, 1);
      }
      return [canvas.toDataURL(), top];
    };
    const map = panel(300, (width, height) => {
      const one = models[model.value], [address, top] = picture(one);
      const place = (ticks, label) => ({ low: 0, high: tokens, ticks, label }), edge = Math.min(width, height);
      const { nodes, left, right, top: above, bottom } = axes(edge, edge, where(),
        place([[0, "1"], [tokens, tokens]], "key"), place([[0, tokens], [tokens, "1"]], "query"));
      nodes.unshift(svg("image", { href: address, class: "tn-map", preserveAspectRatio: "none",
        x: left, y: above, width: right - left, height: bottom - above }));
      return { nodes, label: `Attention map of ${one.label}, ${where()}: largest weight ${shown(top)}. ${said.textContent}` };
    });
    const lines = panel(230, (width, height) => {
      const ticks = [0, 0.5, 1].map((value) => [value, value]);
      const across = { low: 0, high: 1, ticks, label: "neighbourhood r (share of the tokens)" };
      const { nodes, X, Y } = axes(width, height, where(), across, { ...across, label: "accumulated score l" });
      const level = (n) => n / (levels - 1), places = (sizes) => sizes.map((r, n) => [X(r), Y(level(n))]);
      nodes.push(plain("tn-alike", places(alike)));
      models.forEach((one, number) => {
        if (layer.value >= one.heads.length || head.value > one.heads[layer.value]) return;
        const own = number === model.value, sizes = curve(one);
        nodes.push(line(one, places(sizes), own ? 3 : 1.2));
        for (let n = 9; n < levels; n += 18) nodes.push(marker(one, X(sizes[n]), Y(level(n)), own ? 5 : 3.5));
      });
      return { nodes, label: `Accumulated score against neighbourhood. ${said.textContent}` };
    });

    const changed = () => {
      const one = models[model.value];
      layer.fill(one.heads.map((_, n) => `${n + 1}`), layer.value);
      head.fill(["mean of all", ...Array.from({ length: one.heads[layer.value] }, (_, n) => `${n + 1}`)], head.value);
      const sizes = curve(one), half = (sizes[Math.floor((levels - 1) / 2)] + sizes[Math.ceil((levels - 1) / 2)]) / 2;
      said.textContent = `${one.label}, ${where()}: a token finds half of its weight within ${shown(half * tokens)} of`
        + ` ${tokens} tokens on average. Area under the curve ${area(sizes).toFixed(3)}; all visible tokens alike:`
        + ` ${area(alike).toFixed(3)}.`;
      map.repaint();
      lines.repaint();
    };
    const model = choice("model", models.map((one) => one.label), 0, changed);
    const layer = choice("layer", ["1"], 0, changed), head = choice("head", ["mean of all"], 0, changed);
    changed();
    const grey = entry("all visible alike", plain("tn-alike", [[0, 6], [30, 6]]));
    const fields = group("tn-fields", model.node, layer.node, head.node);
    return [fields, map.node, group("tn-side", key(models, grey), said), lines.node];
  });
}
