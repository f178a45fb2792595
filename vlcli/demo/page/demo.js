// The page of `vlcli demo`: pictures and a text go to the model, its answer and its attention are drawn.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const $ = (id) => document.getElementById(id);
const state = { page: null, use: null, slots: [], asking: false, answer: null, word: -1 };

// An element with text and children; text is never read as HTML.
function make(name, facts = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(facts)) {
    if (key === "text") made.textContent = value;
    else if (key === "class") made.className = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

function drawn(name, facts) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(facts)) made.setAttribute(key, value);
  return made;
}

// ---- talking to the server

class Told extends Error {
  constructor(error) { super(error.what); this.error = error; }
}

async function call(path, options) {
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Told({ what: "The server does not answer.", next: "is vlcli demo still running? Start it again and reload this page" });
  }
  const found = await answer.json().catch(() => ({ error: { what: `The server answered with ${answer.status}.` } }));
  if (!answer.ok) throw new Told(found.error);
  return found;
}

const post = (path, value) =>
  call(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(value) });

function tell(error) {
  const box = $("message");
  box.replaceChildren();
  box.hidden = !error;
  if (!error) return;
  const facts = error.error || { what: String(error.message || error) };
  box.append(make("p", { text: facts.what }));
  for (const [key, label] of [["where", "where"], ["got", "got"], ["expected", "expected"], ["next", "next"]]) {
    if (facts[key]) box.append(make("p", { text: `${label}: ${facts[key]}` }));
  }
  box.scrollIntoView({ block: "nearest" });
}

// Runs one step at a time; what fails is told on the page.
async function step(work) {
  if (state.asking) return;
  state.asking = true;
  tell(null);
  document.body.setAttribute("aria-busy", "true");
  for (const id of ["ask", "search"]) $(id).disabled = true;
  try {
    await work();
  } catch (error) {
    tell(error);
  } finally {
    state.asking = false;
    document.body.removeAttribute("aria-busy");
    for (const id of ["ask", "search"]) $(id).disabled = false;
    expect();
  }
}

function expect(within) {
  if (within) state.page.within = within;
  const seconds = state.page.within;
  $("expect").textContent = `an answer takes at most about ${seconds} ${seconds === 1 ? "second" : "seconds"}`;
  $("expect").dataset.seconds = seconds;
}

// ---- pictures

function wanted() {
  const use = state.use;
  if (!use) return 1;
  return use.images || Math.min(state.page.limits.pictures, Math.max(1, state.slots.filter(Boolean).length + 1));
}

// How many pictures may be chosen at once.
const room = () => (state.use && !state.use.images ? state.page.limits.pictures : wanted());

function drawSlots() {
  const count = wanted();
  state.slots.length = count;
  $("file").multiple = room() > 1;
  const slots = [];
  for (let place = 0; place < count; place++) slots.push(slot(place, count));
  $("slots").replaceChildren(...slots);
  drawLook();
}

function slot(place, count) {
  const picture = state.slots[place];
  const name = count > 1 ? `picture ${place + 1}` : "picture";
  const box = make("div", { class: picture ? "slot full" : "slot", "data-place": place });
  box.addEventListener("dragover", (event) => { event.preventDefault(); box.classList.add("over"); });
  box.addEventListener("dragleave", () => box.classList.remove("over"));
  box.addEventListener("drop", (event) => { event.preventDefault(); box.classList.remove("over"); take(event.dataTransfer.files, place); });
  if (picture) {
    const image = make("img", { src: `/pictures/${picture.key}`, alt: `your ${name}`, width: picture.width, height: picture.height });
    if (picture.width < 300) image.className = "small";
    image.addEventListener("error", () => tell(new Told({ what: "A picture is no longer kept.", next: "drop it on the page again" })));
    const overlay = drawn("svg", { viewBox: `0 0 ${picture.width} ${picture.height}`, preserveAspectRatio: "none", "aria-hidden": "true" });
    const frame = make("div", { class: "frame" }, image, overlay);
    frame.style.maxWidth = `${Math.max(120, 440 * picture.width / picture.height)}px`; // at most 440 pixels high
    box.append(frame);
    const buttons = make("div", {}, make("button", { class: "change", type: "button", text: "Change", "aria-label": `choose another ${name}`, onclick: () => choose(place) }));
    if (count === 2 && place === 0 && state.slots[1]) {
      buttons.append(make("button", { class: "change", type: "button", text: "Swap", "aria-label": "swap the two pictures", onclick: swap }));
    }
    box.append(buttons);
  } else {
    const several = room() > 1 && !state.slots.some(Boolean);
    const words = count > 1 ? name : several ? "pictures" : "a picture";
    box.append(make("div", {}, make("p", { text: `Drop ${words} here${several && count > 1 ? count === 2 ? ", or both at once" : `, or all ${count} at once` : ""}` }),
      make("button", { type: "button", text: several ? "Choose files" : "Choose a file", "aria-label": `choose a file for ${name}`, onclick: () => choose(place) })));
  }
  return box;
}

function choose(place) {
  const file = $("file");
  file.dataset.place = place;
  file.value = "";
  file.click();
}

// Several files fill the slots from the one they were dropped on, or from an earlier one if they would not fit there.
const take = (files, place) => step(async () => {
  const most = room();
  if (files.length > most) {
    throw new Told({ what: most > 1 ? `This task takes ${most} pictures.` : "This task takes one picture.",
      got: `${files.length} files`, next: `choose ${most > 1 ? `${most} files` : "one file"}` });
  }
  const first = Math.max(0, Math.min(place, most - files.length));
  for (const [number, file] of [...files].entries()) {
    state.slots[first + number] = await upload(file);
    forget();
  }
  drawSlots();
});

function swap() {
  state.slots.reverse();
  forget();
  drawSlots();
}

async function upload(file) {
  const most = state.page.limits.upload;
  if (file.size > most) {
    throw new Told({ what: "The picture is too large.", got: `${file.name}: ${file.size.toLocaleString("en")} bytes`,
      expected: `at most ${most.toLocaleString("en")} bytes`, next: "make the picture smaller" });
  }
  try {
    return await call("/api/pictures", { method: "POST", headers: { "Content-Type": "application/octet-stream" }, body: file });
  } catch (error) {
    if (error.error && error.error.where === "the picture") error.error.where = file.name;
    throw error;
  }
}

// ---- samples

function drawSamples() {
  const samples = state.page.samples;
  $("samples-box").hidden = !samples.length;
  $("samples").replaceChildren(...samples.map((sample, number) => {
    const thumbs = make("span", { class: "thumbs" });
    for (let place = 0; place < Math.min(sample.pictures, 3); place++) {
      thumbs.append(make("img", { src: `/thumbnails/samples/${number}/${place}`, alt: "", loading: "lazy" }));
    }
    const words = sample.text || `sample ${number + 1}`;
    const button = make("button", { type: "button", onclick: () => begin(`/api/samples/${number}`), "aria-label": `begin with: ${words}` });
    button.append(thumbs, make("span", { text: words.length > 70 ? `${words.slice(0, 68)} ...` : words }));
    return make("li", {}, button);
  }));
}

const begin = (path) => step(async () => {
  const found = await post(path, {});
  state.slots = state.use && state.use.images ? found.pictures.slice(0, state.use.images) : found.pictures.slice(0, state.page.limits.pictures);
  if (found.text && $("text-row").hidden === false) $("text").value = found.text;
  forget();
  state.expected = found.answer;
  drawSlots();
  const enough = state.use && state.slots.filter(Boolean).length >= Math.max(1, state.use.images);
  if (enough && ($("text").value.trim() || state.use.text === "none")) await ask();
});

// ---- asking

function forget() {
  state.answer = null;
  state.expected = "";
  $("look").hidden = true;
  arrange();
}

const keys = () => state.slots.filter(Boolean).map((picture) => picture.key);

async function ask() {
  const use = state.use;
  const text = use.text === "none" ? "" : $("text").value.trim();
  if (text.length > state.page.limits.text) {
    throw new Told({ what: "The text is too long.", got: `${text.length.toLocaleString("en")} characters`,
      expected: `at most ${state.page.limits.text.toLocaleString("en")} characters`, next: "shorten it" });
  }
  if (keys().length < Math.max(1, use.images)) {
    throw new Told({ what: use.images > 1 ? `This task takes ${use.images} pictures.` : "Choose a picture first.", next: "drop one on the page, choose a file, or begin with a sample" });
  }
  if (!text && use.text === "needed") {
    throw new Told({ what: "Type a question or a sentence first." });
  }
  const expected = state.expected;
  const begun = performance.now();
  const answer = await post("/api/ask", { task: use.name, pictures: keys(), text });
  answer.passed = (performance.now() - begun) / 1000;
  answer.text = text;
  answer.expected = expected;
  state.answer = answer;
  state.word = -1;
  expect(answer.within);
  drawResult(answer);
  arrange();
  drawLook(true);
  if (narrow.matches) $("result").scrollIntoView({ block: "nearest", behavior: "smooth" });
}

function drawResult(answer) {
  $("found").hidden = true;
  const result = $("result");
  result.replaceChildren();
  if (answer.text) result.append(make("p", { class: "asked", text: answer.text }));
  const words = answer.kind === "match" ? `fit: ${answer.words}` : answer.words;
  result.append(make("p", { class: words.length > 40 ? "answer long" : "answer", id: "answer", text: words || "(nothing)" }));
  if (answer.expected) result.append(make("p", { class: "quiet", text: `the data say: ${answer.expected}` }));
  const choices = answer.kind === "match" ? [{ label: "fit", probability: Number(answer.words) }]
    : answer.kind === "boxes" ? answer.pictures[0].boxes.slice(0, 12).map((one) => ({ label: one.label, probability: one.score }))
    : answer.choices.filter((choice, rank) => rank < 2 || choice.probability >= 0.0005);
  if (choices.length) {
    const bars = make("dl", { class: "bars", id: "bars" });
    for (const choice of choices) {
      const fill = make("div", { class: "fill" });
      fill.style.width = `${Math.max(0, Math.min(1, choice.probability)) * 100}%`;
      bars.append(make("dt", { text: choice.label, title: choice.label }), make("dd", { class: "track", "aria-hidden": "true" }, fill),
        make("dd", { class: "value", text: answer.kind === "match" ? answer.words : percent(choice.probability) }));
    }
    result.append(bars);
  }
  for (const note of answer.notes) result.append(make("p", { class: "note", text: note }));
  const waited = answer.waited > 0.05 ? `, after ${answer.waited.toFixed(1)} s in the queue` : "";
  result.append(make("p", { class: "time", id: "time", text: `answered in ${answer.seconds.toFixed(2)} s${waited}` }));
}

const percent = (share) => `${(share * 100).toFixed(1)} %`;

// ---- where the model looked

function drawLook(anew) {
  const answer = state.answer;
  for (const svg of document.querySelectorAll(".frame svg")) svg.replaceChildren();
  $("look").hidden = !answer || !(answer.attention || answer.pictures.some((picture) => picture.regions.length));
  if (!answer) return;
  const seen = answer.attention;
  $("view").hidden = !seen;
  document.querySelector("label[for=view]").hidden = !seen;
  $("show-row").hidden = !answer.pictures.some((picture) => picture.regions.length) && !seen;
  if (anew) {
    $("view").replaceChildren(...(seen ? seen.views.map((name, number) => make("option", { value: number, text: name })) : []));
    drawWords(seen);
    if (!seen) $("show-regions").checked = true;
  }
  const overlays = document.querySelectorAll(".frame svg");
  let top = 0;
  const weights = answer.pictures.map((_, place) => seen ? weigh(seen, place) : []);
  for (const each of weights) for (const value of each) top = Math.max(top, value);
  answer.pictures.forEach((picture, place) => overlays[place] && overlay(overlays[place], picture, seen ? seen.pictures[place] : null, weights[place], top));
  $("look-note").textContent = seen ? note(seen, top, weights) : "The outlines are the regions that the model read.";
}

function drawWords(seen) {
  const buttons = !seen ? [] : [[-1, "all words"], ...seen.words.entries()].map(([number, word]) =>
    make("button", { type: "button", text: word, "aria-pressed": String(number === state.word), onclick: (event) => {
      state.word = number;
      for (const other of $("words").children) other.setAttribute("aria-pressed", String(other === event.currentTarget));
      drawLook();
    } }));
  $("words").replaceChildren(...buttons);
}

// Attention to every place of a picture: of the chosen view, of one word or averaged over all.
function weigh(seen, place) {
  const rows = seen.pictures[place].weights[Number($("view").value) || 0];
  if (state.word >= 0) return rows[state.word];
  return rows[0].map((_, region) => rows.reduce((sum, row) => sum + row[region], 0) / rows.length);
}

function note(seen, top, weights) {
  const places = Math.max(...weights.map((each) => each.length));
  return `The brightest place gets ${percent(top)} of the attention; spread evenly over ${places} places it would be ${percent(1 / places)}.`;
}

function overlay(svg, picture, places, weights, top) {
  const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  const at = ([x1, y1, x2, y2]) => ({ x: x1 * width, y: y1 * height, width: Math.max(0, x2 - x1) * width, height: Math.max(0, y2 - y1) * height });
  const unit = width / (svg.clientWidth || width); // of the picture's pixels in one of the screen's
  const line = 1.5 * unit;
  if (places) {
    const order = places.boxes.map((_, number) => number).sort((a, b) => area(places.boxes[b]) - area(places.boxes[a]));
    for (const number of order) {
      const share = top > 0 ? weights[number] / top : 0;
      svg.append(drawn("rect", { ...at(places.boxes[number]), fill: "#ffb000", "fill-opacity": ((picture.regions.length ? 0.14 : 0.6) * share).toFixed(3),
        stroke: "#e8590c", "stroke-width": picture.regions.length ? (line * (0.7 + 1.8 * share)).toFixed(2) : 0, "stroke-opacity": Math.min(1, 1.2 * share).toFixed(3) }));
    }
  }
  if ($("show-regions").checked) {
    const outlines = picture.regions.length ? picture.regions : places ? places.boxes : [];
    for (const box of outlines) svg.append(drawn("rect", { ...at(box), fill: "none", stroke: "#1f5fbf", "stroke-width": line * 0.8, "stroke-opacity": 0.8 }));
  }
  for (const found of picture.boxes) {
    svg.append(drawn("rect", { ...at(found.box), fill: "none", stroke: "#0a8f3c", "stroke-width": line * 1.5 }));
    const size = 14 * unit;
    const label = drawn("text", { x: found.box[0] * width, y: Math.max(size, found.box[1] * height - 4 * unit), "font-size": size, fill: "#0a8f3c", stroke: "#fff", "stroke-width": size / 5, "paint-order": "stroke" });
    label.textContent = found.label.length > 24 ? `${found.score.toFixed(2)}` : `${found.label} ${found.score.toFixed(2)}`;
    svg.append(label);
  }
}

const area = ([x1, y1, x2, y2]) => (x2 - x1) * (y2 - y1);

// ---- searching

const search = () => step(async () => {
  const text = $("text").value.trim();
  const answer = await post("/api/search", { text, pictures: keys() });
  expect(answer.within);
  forget();
  drawLook();
  const rows = answer.found.map((row) => make("li", {}, make("button", { type: "button", "aria-label": `take ${row.name}`, onclick: () => begin(`/api/folder/${row.number}`) },
    make("img", { src: `/thumbnails/folder/${row.number}/0`, alt: row.name, loading: "lazy" }), make("span", { text: `${row.score.toFixed(3)}  ${row.name}` }))));
  $("result").replaceChildren(make("p", { class: "asked", text: text ? `nearest to: ${text}` : "nearest to the picture" }),
    make("p", { class: "time", id: "time", text: `searched ${state.page.folder.pictures} pictures in ${answer.seconds.toFixed(2)} s` }));
  $("found").replaceChildren(make("ol", {}, ...rows));
  $("found").hidden = false;
});

// ---- the page

const LABELS = { answer: "Question", verdict: "Sentence: is it true?", match: "Sentence: does it fit?", box: "What to find", label: "Sentence", caption: "Text", other: "Text", boxes: "Text" };

function choose_use(name) {
  state.use = state.page.uses.find((use) => use.name === name) || state.page.uses[0] || null;
  const use = state.use;
  $("task-about").textContent = use ? use.about : "This model finds pictures by a sentence or by a picture.";
  $("ask").hidden = !use;
  $("text-row").hidden = Boolean(use) && use.text === "none" && !state.page.folder;
  $("text-label").textContent = use ? LABELS[use.kind] || "Text" : "What to look for";
  $("ask").textContent = use && use.kind === "caption" ? "Describe" : use && use.kind === "boxes" ? "Find" : "Ask";
  forget();
  drawSlots();
}

// On a narrow screen the pictures, with where the model looked, follow the answer once there is one.
const narrow = window.matchMedia("(max-width: 760px)");
function arrange() {
  if (narrow.matches && state.answer) $("result").after($("slots"));
  else $("left").prepend($("slots"));
  $(narrow.matches ? "right" : "left").append($("samples-box"));
}

async function start() {
  arrange();
  narrow.addEventListener("change", arrange);
  state.page = await call("/api/page");
  const page = state.page;
  $("name").textContent = page.model;
  document.title = `${page.model}: vlcli demo`;
  $("about").textContent = `${page.about}${page.folder ? `, and a folder of ${page.folder.pictures} pictures to search: ${page.folder.name}` : ""}`;
  $("task").replaceChildren(...page.uses.map((use) => make("option", { value: use.name, text: use.name })));
  $("task-row").hidden = page.uses.length < 2;
  $("search").hidden = !page.folder;
  $("task").addEventListener("change", () => choose_use($("task").value));
  $("form").addEventListener("submit", (event) => { event.preventDefault(); state.use ? step(ask) : search(); });
  $("text").addEventListener("keydown", (event) => { if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); state.use ? step(ask) : search(); } });
  $("text").addEventListener("input", () => { state.expected = ""; });
  $("search").addEventListener("click", search);
  $("view").addEventListener("change", () => drawLook());
  $("show-regions").addEventListener("change", () => drawLook());
  $("file").addEventListener("change", (event) => take(event.target.files, Number(event.target.dataset.place || 0)));
  window.addEventListener("dragover", (event) => event.preventDefault());
  window.addEventListener("drop", (event) => { event.preventDefault(); if (!event.target.closest(".slot")) take(event.dataTransfer.files, 0); });
  choose_use("");
  drawSamples();
  expect();
  document.body.dataset.ready = "yes";
}

start().catch(tell);
