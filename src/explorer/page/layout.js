// Layers of a graph: sources above, users below, crossings reduced by the mean of neighbours.

/** Places of nodes; `src[n]` lists the sources of n, all of them smaller. Returns { x, y, layers } in units of one node. */
function layout(src) {
  const n = src.length, layer = new Int32Array(n), users = src.map(() => []);
  for (let k = 0; k < n; k++) for (const m of src[k]) { layer[k] = Math.max(layer[k], layer[m] + 1); users[m].push(k); }
  // Leaves stand just above their first user.
  for (let k = n - 1; k >= 0; k--) if (!src[k].length && users[k].length) layer[k] = Math.min(...users[k].map((u) => layer[u])) - 1;
  const layers = Array.from({ length: n ? Math.max(...layer) + 1 : 0 }, () => []);
  for (let k = 0; k < n; k++) layers[layer[k]].push(k);
  const x = new Float64Array(n);
  const place = () => layers.forEach((list) => list.forEach((k, i) => { x[k] = i - (list.length - 1) / 2; }));
  place();
  for (let round = 0; round < 8; round++) {
    const order = round % 2 ? [...layers].reverse() : layers;
    for (const list of order.filter((l) => l.length)) {
      const want = new Map(list.map((k) => {
        const near = round % 2 ? users[k] : src[k];
        return [k, near.length ? near.reduce((a, m) => a + x[m], 0) / near.length : x[k]];
      }));
      list.sort((a, b) => want.get(a) - want.get(b));
      // Each as near to its wish as its neighbour allows.
      let last = -Infinity;
      for (const k of list) { x[k] = Math.max(want.get(k), last + 1); last = x[k]; }
      const shift = list.reduce((a, k) => a + want.get(k) - x[k], 0) / list.length;
      for (const k of list) x[k] += shift;
    }
  }
  return { x, y: Float64Array.from(layer), layers: layers.length };
}
