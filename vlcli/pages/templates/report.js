"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const one = (selector, root = document) => root.querySelector(selector);
  const SVG = "http://www.w3.org/2000/svg";
  const made = (name, attributes = {}, text = "") => {
    const node = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text) node.textContent = text;
    return node;
  };
  const number = (value) => (Math.abs(value) >= 1e-3 || value === 0 ? String(Number(value.toPrecision(4))) : value.toExponential(2));

  one("#theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });

  for (const button of all("[data-copy]")) {
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(button.dataset.copy);
        button.textContent = "copied";
      } catch {
        getSelection().selectAllChildren(one("code", button.parentElement));
        button.textContent = "selected";
      }
      setTimeout(() => { button.textContent = "copy"; }, 1500);
    });
  }

  // Charts: the values at the step under the pointer, or under the cursor that the arrow keys move.
  for (const figure of all(".chart")) {
    const lines = JSON.parse(figure.dataset.lines);
    const [first, last] = JSON.parse(figure.dataset.span);
    const svg = one("svg", figure), cursor = one(".cursor", figure), values = all("[data-value]", figure), at = one("[data-at]", figure);
    const steps = [...new Set(lines.flatMap((line) => line.map((point) => point[0])))].sort((a, b) => a - b);
    let place = -1;
    const show = (next) => {
      place = Math.max(0, Math.min(steps.length - 1, next));
      const step = steps[place], x = 52 + (346 * (step - first)) / (last - first || 1);
      cursor.setAttribute("x1", x); cursor.setAttribute("x2", x); cursor.removeAttribute("hidden");
      at.textContent = `step ${step}`;
      lines.forEach((line, n) => {
        const near = line.reduce((best, point) => (Math.abs(point[0] - step) < Math.abs(best[0] - step) ? point : best), line[0]);
        values[n].textContent = number(near[1]);
      });
    };
    const hide = () => { cursor.setAttribute("hidden", ""); at.textContent = ""; values.forEach((value) => { value.textContent = ""; }); place = -1; };
    const nearest = (event) => {
      const frame = svg.getBoundingClientRect(), share = ((event.clientX - frame.left) / frame.width) * 420;
      const step = first + ((share - 52) / 346) * (last - first);
      show(steps.reduce((best, value, n) => (Math.abs(value - step) < Math.abs(steps[best] - step) ? n : best), 0));
    };
    svg.addEventListener("pointermove", nearest);
    svg.addEventListener("pointerdown", nearest);
    figure.addEventListener("pointerleave", hide);
    figure.addEventListener("blur", hide);
    figure.addEventListener("keydown", (event) => {
      const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (move) { event.preventDefault(); show(place < 0 ? (move > 0 ? 0 : steps.length - 1) : place + move); }
    });
  }

  // Samples: chosen by right or wrong, kind and words; a dozen at a time.
  for (const part of all("[data-samples]")) {
    const cards = all(".sample", part), form = one("form", part), more = one("[data-more]", part);
    const field = (name) => one(`[data-filter=${name}]`, part);
    const asked = (name) => field(name)?.value ?? "";
    let most = 12;
    const fits = (card) => {
      const right = card.dataset.right.split(",")[Number(asked("column") || 0)];
      const state = asked("state");
      return (!state || right === (state === "right" ? "1" : "0")) && (!asked("kind") || card.dataset.kind === asked("kind"))
        && one(".words", card).textContent.toLowerCase().includes(asked("text").trim().toLowerCase());
    };
    const choose = () => {
      const found = cards.filter(fits), shown = new Set(found.slice(0, most));
      cards.forEach((card) => { card.hidden = !shown.has(card); });
      more.hidden = found.length <= most;
      one("[data-none]", part).hidden = found.length > 0;
      one("[data-count]", part).textContent = `${shown.size} of ${found.length} shown`;
      part.classList.toggle("regions-on", Boolean(field("regions")?.checked));
    };
    form.addEventListener("input", () => { most = 12; choose(); });
    form.addEventListener("submit", (event) => event.preventDefault());
    more.addEventListener("click", () => { most += 24; choose(); });
    choose();
  }

  // Claims: chosen by verdict, table and words, in all papers at once.
  for (const part of all("[data-claims]")) {
    const rows = all("[data-claim]", part), form = one("form", part);
    const asked = (name) => one(`[data-claim-filter=${name}]`, part).value.trim().toLowerCase();
    const fits = (row) => (!asked("verdict") || row.dataset.verdict === asked("verdict"))
      && (!asked("table") || row.dataset.table.toLowerCase() === asked("table"))
      && row.textContent.toLowerCase().includes(asked("text"));
    const choose = () => {
      rows.forEach((row) => { row.hidden = !fits(row); });
      const left = (root) => all("[data-claim]", root).filter((row) => !row.hidden).length;
      all("[data-paper]", part).forEach((paper) => { paper.hidden = left(paper) === 0; });
      one("[data-claim-none]", part).hidden = left(part) > 0;
      one("[data-claim-count]", part).textContent = `${left(part)} of ${rows.length} claims shown`;
    };
    form.addEventListener("input", choose);
    form.addEventListener("submit", (event) => event.preventDefault());
    choose();
  }

  // Attention: values of queries (words or regions) over the regions of each picture.
  const store = one("#looks");
  if (!store) return;
  const models = JSON.parse(store.textContent), part = (name) => one(`[data-look=${name}]`);
  const bytes = (text) => Int8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const now = { pinned: null, query: null };
  const option = (select, value, text, group) => {
    const node = document.createElement("option");
    node.value = value; node.textContent = text;
    if (!group) { select.append(node); return; }
    let box = all("optgroup", select).find((other) => other.label === group);
    if (!box) { box = document.createElement("optgroup"); box.label = group; select.append(box); }
    box.append(node);
  };
  const chosen = (name) => Number(part(name).value || 0);
  const model = () => models[chosen("model")];
  const example = () => model().examples[chosen("example")];
  const map = () => example().maps[chosen("map")];
  const queries = () => (map().asked === "words" ? example().words : map().asked === "tokens" ? map().names : null);

  // Values (queries x regions) of each picture for the chosen head, or the mean of all heads.
  const tables = () => {
    const current = map(), head = Number(part("head").value);
    return example().boxes.map((boxes, picture) => {
      const data = current.decoded[picture], regions = boxes.length, count = queries()?.length ?? regions;
      return Array.from({ length: count }, (_, q) => Array.from({ length: regions }, (_, k) => {
        const value = (h) => data[(h * count + q) * regions + k];
        if (head >= 0) return (value(head) * current.top) / 127;
        let sum = 0;
        for (let h = 0; h < current.heads; h += 1) sum += value(h);
        return (sum * current.top) / 127 / current.heads;
      }));
    });
  };
  const mean = (rows) => (rows.length ? rows[0].map((_, k) => rows.reduce((sum, row) => sum + row[k], 0) / rows.length) : []);
  const plain = (q) => map().asked !== "words" || !example().special[q];

  const paint = (announce) => {
    const { query } = now;
    const rows = now.tables.map((table, picture) => {
      if (query === null) return mean(table.filter((_, q) => plain(q)));
      if (query.picture !== undefined) return query.picture === picture ? table[query.q] : table[query.q]?.map(() => 0) ?? [];
      return table[query.q];
    });
    const cells = all(".cell", part("pictures"));
    for (const cell of cells) {
      const value = rows[cell.dataset.picture]?.[cell.dataset.region] ?? 0;
      const share = Math.min(1, Math.abs(value) / now.top), colour = value < 0 ? "var(--cold)" : "var(--heat)";
      cell.dataset.value = value;
      cell.hole.setAttribute("fill-opacity", map().signed || cell.whole ? 0 : share.toFixed(3));
      cell.style.fill = map().signed && !cell.whole ? colour : "transparent";
      cell.style.fillOpacity = (0.75 * share).toFixed(3);
      if (!cell.small) cell.style.stroke = colour;
      cell.style.strokeOpacity = (0.25 + 0.75 * share).toFixed(3);
      cell.style.strokeWidth = cell.whole ? 2 + 14 * share : cell.small ? 0.3 : 1 + 2.5 * share;
      cell.classList.toggle("asked", query?.picture === Number(cell.dataset.picture) && query.q === Number(cell.dataset.region));
    }
    all(".word").forEach((word) => {
      word.setAttribute("aria-pressed", String(now.pinned === null ? word.dataset.q === "" : now.pinned.picture === undefined && word.dataset.q === String(now.pinned.q)));
      word.style.setProperty("--w", 0);
    });
    const best = rows.flatMap((row, picture) => row.map((value, region) => ({ value, picture, region }))).sort((a, b) => b.value - a.value).slice(0, 6);
    const several = example().boxes.length > 1;
    part("best").replaceChildren(...best.map(({ value, picture, region }) => {
      const item = document.createElement("li");
      item.textContent = `${several ? `image ${picture + 1}, ` : ""}${example().labels[picture][region] || `region ${region + 1}`}: ${number(value)}`;
      return item;
    }));
    if (announce && best.length) part("status").textContent = `highest: ${part("best").firstChild.textContent}`;
  };
  const ask = (query, pin) => {
    now.query = query;
    if (pin) now.pinned = query;
    paint(pin);
  };
  const back = () => ask(now.pinned, false);

  // The words that attend to a region.
  const wordsOf = (picture, region) => {
    const column = now.tables[picture].map((row) => Math.max(row[region], 0));
    all(".word").forEach((word) => word.style.setProperty("--w", word.dataset.q === "" ? 0 : Math.min(1, column[Number(word.dataset.q)] / now.top).toFixed(3)));
  };

  const drawQueries = () => {
    const names = queries();
    const button = (q, text, special) => {
      const node = document.createElement("button");
      node.type = "button"; node.className = special ? "word special" : "word"; node.dataset.q = q === null ? "" : q; node.textContent = text;
      const query = q === null ? null : { q };
      node.addEventListener("pointerenter", () => ask(query, false));
      node.addEventListener("pointerleave", back);
      node.addEventListener("focus", () => ask(query, false));
      node.addEventListener("blur", back);
      node.addEventListener("click", () => ask(query, true));
      return node;
    };
    const everything = map().asked === "words" ? "all words" : map().asked === "tokens" ? "mean" : "all regions";
    const list = [button(null, everything, false)];
    (names ?? []).forEach((name, q) => list.push(button(q, name, map().asked === "words" && example().special[q])));
    part("queries").replaceChildren(...list);
    part("queries").setAttribute("aria-label", map().asked === "words" ? "Words of the sentence" : "Queries");
  };

  const drawPictures = () => {
    const look = example(), asksRegions = map().asked === "regions";
    part("pictures").replaceChildren(...look.pictures.map((picture, n) => {
      const svg = made("svg", { viewBox: `0 0 ${picture.width} ${picture.height}`, role: "group", "aria-label": `image ${n + 1}: ${picture.name}` });
      const frame = { width: picture.width, height: picture.height }, mask = made("mask", { id: `mask${n}` });
      mask.append(made("rect", { ...frame, fill: "#fff" }));
      svg.classList.toggle("patches", look.grids[n]);
      svg.append(mask, made("use", { href: `#${picture.id}` }));
      if (!map().signed) svg.append(made("rect", { ...frame, class: "veil", mask: `url(#mask${n})` }));
      const order = look.boxes[n].map((box, region) => ({ box, region })).sort((a, b) => b.box[2] * b.box[3] - a.box[2] * a.box[3]);
      for (const { box, region } of order) {
        const label = look.labels[n][region] || `region ${region + 1}`;
        const place = { x: box[0] * picture.width, y: box[1] * picture.height, width: box[2] * picture.width, height: box[3] * picture.height };
        const cell = made("rect", { ...place, class: "cell", "data-picture": n, "data-region": region });
        cell.hole = made("rect", { ...place, fill: "#000" });
        cell.whole = look.boxes[n].length > 1 && box[2] * box[3] > 0.85;
        cell.small = look.grids[n];
        mask.append(cell.hole);
        cell.append(made("title", {}, label));
        const query = { q: region, picture: n };
        if (asksRegions) {
          cell.setAttribute("tabindex", "0"); cell.setAttribute("role", "button"); cell.setAttribute("aria-label", label);
          cell.addEventListener("pointerenter", () => ask(query, false));
          cell.addEventListener("pointerleave", back);
          cell.addEventListener("focus", () => ask(query, false));
          cell.addEventListener("blur", back);
          cell.addEventListener("click", () => ask(query, true));
          cell.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); ask(query, true); } });
        } else {
          cell.addEventListener("pointerenter", () => wordsOf(n, region));
          cell.addEventListener("pointerleave", () => paint(false));
        }
        svg.append(cell);
      }
      return svg;
    }));
  };

  const draw = () => {
    const current = map();
    current.decoded ??= current.data.map(bytes);
    now.tables = tables();
    const flat = now.tables.flatMap((table) => table.filter((_, q) => plain(q)).flat());
    now.top = Math.max(...flat.map(Math.abs), 1e-12);
    now.pinned = null; now.query = null;
    drawQueries(); drawPictures();
    part("bar").classList.toggle("signed", current.signed);
    one(".bar span").textContent = current.signed ? `-${number(now.top)}` : "0";
    part("top").textContent = number(now.top);
    part("even").textContent = current.group === "attention" ? `Spread evenly over all ${current.keys} tokens: ${number(1 / current.keys)}.` : current.group === "Grad-CAM" ? "Attention times the gradient of the score." : "Added to the attention scores before softmax.";
    paint(false);
  };
  const heads = () => {
    const select = part("head"), before = select.value;
    select.replaceChildren();
    option(select, -1, map().heads > 1 ? `mean of ${map().heads}` : "mean");
    if (map().heads > 1) for (let h = 0; h < map().heads; h += 1) option(select, h, h + 1);
    select.value = before && Number(before) < map().heads ? before : "-1";
    draw();
  };
  const maps = () => {
    const select = part("map"), before = select.selectedOptions[0]?.textContent;
    select.replaceChildren();
    example().maps.forEach((other, n) => option(select, n, `${other.name}${other.asked === "words" ? "" : ` (from ${other.asked})`}`, other.group));
    const same = all("option", select).find((node) => node.textContent === before);
    const words = example().maps.map((other, n) => (other.asked === "words" && other.group === "attention" ? n : -1)).filter((n) => n >= 0);
    select.value = same ? same.value : String(words.at(-1) ?? 0);
    part("facts").textContent = example().facts;
    heads();
  };
  const examples = () => {
    const select = part("example");
    select.replaceChildren();
    model().examples.forEach((look, n) => option(select, n, look.title));
    maps();
  };
  models.forEach((look, n) => option(part("model"), n, look.title));
  part("model").addEventListener("change", examples);
  part("example").addEventListener("change", maps);
  part("map").addEventListener("change", heads);
  part("head").addEventListener("change", draw);
  examples();
})();
