// The page: collects an order, sends it to the program on this machine, and shows what comes back.

const $ = (id) => document.getElementById(id);
const form = $("order");
const SHOWN = 24; // cards at a time
const GROUPS = {
  Noise: ["gaussian_noise", "shot_noise", "impulse_noise"],
  Blur: ["defocus_blur", "glass_blur", "motion_blur", "zoom_blur"],
  Weather: ["snow", "frost", "fog", "brightness"],
  Camera: ["contrast", "elastic_transform", "pixelate", "jpeg_compression"],
};
let about; // what can be chosen
let uploads = []; // [name, id] of the images that the program has
let uploading = null; // AbortController while images are sent
let running = null; // AbortController of a run
let result = null; // {rows, summary, subject} of the last run
let shown = SHOWN;

// Talking to the program

async function ask(path, options) {
  let answer;
  try {
    answer = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The program has ended. Start “domainadaptor page” again and open the address that it prints.");
  }
  if (!answer.ok) {
    const said = await answer.json().catch(() => ({}));
    throw new Error(said.error ?? `The program answered with an error (${answer.status}).`);
  }
  return answer;
}

async function* lines(path, order, signal) {
  const answer = await ask(path, { method: "POST", body: JSON.stringify(order), signal });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const whole = (rest + value).split("\n");
    rest = whole.pop();
    for (const line of whole) yield JSON.parse(line);
  }
}

// Small things

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children.filter((child) => child !== null));
  return made;
}
const words = (name) => name.replaceAll("_", " ");
const percent = (share) => `${Math.round(100 * share)}%`;
const plural = (count, one) => `${count.toLocaleString("en")} ${one}${count === 1 ? "" : "s"}`;
const seconds = (value) => (value < 0.1 ? `${Math.ceil(1000 * value)} ms` : `${value.toFixed(value < 10 ? 1 : 0)} s`);
const option = (value, text) => element("option", { value, textContent: text });

function showError(text, stage = "") {
  const place = form.querySelector(`[data-stage="${stage}"] > .error`) ?? $("other-error");
  place.textContent = text;
  place.classList.toggle("calm", text.startsWith("Canceled"));
  place.hidden = false;
  place.scrollIntoView({ block: "nearest" });
}
function clearErrors() {
  for (const place of document.querySelectorAll(".error")) place.hidden = true;
}

// The order

const chosen = (name) => form.elements[name].value;

function makeOrder(strict = true) {
  const network = chosen("network") === "other" ? $("file").value.trim() : chosen("network");
  if (!network) throw Object.assign(new Error("Type the path of a checkpoint, or the name of a network."), { stage: "network" });
  const own = chosen("images") === "own";
  if (strict && own && uploading) throw Object.assign(new Error("Images are still being added. Wait a moment."), { stage: "images" });
  if (strict && own && !uploads.length) throw Object.assign(new Error("Choose a folder or some images first."), { stage: "images" });
  return {
    network,
    ...(own ? { images: Object.fromEntries(uploads) } : { style: $("style").value }),
    corruption: $("corruption").value || null,
    severity: Number($("severity").value),
  };
}

function subject(order) {
  const images = order.style ? `sample digits (${order.style})` : "your images";
  const spoiled = order.corruption ? ` · ${words(order.corruption)}, ${order.severity} of 5` : "";
  const network = order.network === "demo" ? "the demo network" : order.network.split("/").pop();
  return `${order.method} · ${network} · ${images}${spoiled}`;
}

// Images of one's own

async function filesOf(entry, path) {
  if (entry.isFile) {
    const file = await new Promise((resolve, reject) => entry.file(resolve, reject));
    return [{ file, name: path + file.name }];
  }
  const reader = entry.createReader();
  const found = [];
  for (;;) {
    const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (!some.length) break;
    for (const inner of some) found.push(...(await filesOf(inner, `${path}${entry.name}/`)));
  }
  return found;
}

const isHidden = (name) => name.split("/").some((part) => part.startsWith(".")) || /(^|\/)(Thumbs\.db|desktop\.ini)$/.test(name);

// Keep what fits: evenly spread over the folder, because its images are usually sorted by class.
function fitting(files, refused) {
  const named = new Map();
  for (const { file, name } of files.sort((a, b) => (a.name < b.name ? -1 : 1))) {
    if (isHidden(name)) continue;
    if (file.size > about.limits.bytes) refused.push([name, `larger than ${about.limits.bytes / 2 ** 20} MB`]);
    else if (named.has(name)) refused.push([name, "another image of that name was chosen too"]);
    else named.set(name, file);
  }
  const all = [...named];
  const mean = all.reduce((sum, [, file]) => sum + file.size, 0) / all.length || 1;
  const most = Math.min(all.length, about.limits.images, Math.max(1, Math.floor((0.9 * about.limits.stored) / mean)));
  const kept = Array.from({ length: most }, (_, at) => all[Math.floor((at * all.length) / most)]);
  return { kept, left: all.length - kept.length };
}

async function addImages(files) {
  form.elements.images.value = "own";
  clearErrors();
  uploading?.abort();
  const mine = (uploading = new AbortController());
  const refused = [];
  uploads = [];
  showRefused(refused);
  showChoices();
  const { kept, left } = fitting(files, refused);
  const found = [];
  let at = 0;
  const sendNext = async () => {
    while (at < kept.length) {
      const position = at++;
      const [name, file] = kept[position];
      try {
        const answer = await ask("images", { method: "PUT", body: file, signal: mine.signal });
        found.push({ position, name, id: (await answer.json()).id });
      } catch (error) {
        if (error.name === "AbortError" || error.message.startsWith("The program")) throw error;
        refused.push([name, error.message]);
      }
      $("chosen").textContent = `Adding images: ${found.length + refused.length} of ${kept.length}`;
    }
  };
  try {
    await Promise.all([sendNext(), sendNext(), sendNext()]);
  } catch (error) {
    mine.abort();
    if (uploading === mine && error.name !== "AbortError") showError(error.message, "images");
    if (uploading !== mine) return;
  }
  if (uploading !== mine) return;
  uploading = null;
  uploads = found.sort((a, b) => a.position - b.position).map(({ name, id }) => [name, id]);
  const rest = left ? ` (evenly chosen; ${plural(left, "more")} did not fit)`.replace("mores", "more") : "";
  $("chosen").textContent = uploads.length ? `${plural(uploads.length, "image")}${rest}.` : "";
  showRefused(refused);
  if (!uploads.length) showError(files.length ? "None of these files is an image that can be read." : "There is no file in it.", "images");
  preview();
}

function showRefused(refused) {
  $("refused").hidden = !refused.length;
  $("refused").open = !uploads.length;
  $("refused").querySelector("summary").textContent = `${plural(refused.length, "file")} left out`;
  $("refused").querySelector("ul").replaceChildren(...refused.map(([name, why]) => element("li", { textContent: `${name}: ${why}` })));
}

// What the network gets

let previewing = null;
let previewTimer = 0;

function preview() {
  clearTimeout(previewTimer);
  $("preview").classList.add("old");
  previewTimer = setTimeout(showPreview, 200);
}

async function showPreview() {
  if (running) return;
  previewing?.abort();
  const mine = (previewing = new AbortController());
  let order;
  try {
    order = makeOrder(false);
  } catch {
    $("preview").replaceChildren();
    return;
  }
  let stage = "";
  try {
    for await (const line of lines("preview", order, mine.signal)) {
      stage = line.stage ?? stage;
      if (line.what) progress(line);
      if (line.error) throw Object.assign(new Error(line.error), { stage });
      if (line.pictures) showPictures(line, order);
    }
  } catch (error) {
    if (error.name === "AbortError") return;
    $("preview").replaceChildren();
    if (order.style || uploads.length || error.stage !== "images") showError(error.message, error.stage);
  } finally {
    if (previewing === mine && !running) progress(null);
  }
}

function showPictures(line, order) {
  $("preview").replaceChildren(...line.pictures.map((src) => picture(src, "")));
  $("preview").classList.remove("old");
  if (order.style) return;
  const known = line.labeled ? `The class of ${line.labeled} is known from their folder.` : "No folder is named after a class, so accuracy cannot be measured.";
  $("chosen").textContent = `${$("chosen").textContent.split(". ")[0].replace(/\.?$/, ".")} ${known}`;
}

function picture(src, alt) {
  const image = element("img", { alt, src });
  image.addEventListener("load", () => image.classList.toggle("tiny", image.naturalWidth <= 64), { once: true });
  return image;
}

// Progress

function progress(line) {
  $("progress").hidden = !line;
  if (!line) return;
  const bar = $("progress").querySelector("progress");
  if (line.total) Object.assign(bar, { max: line.total, value: line.done });
  else bar.removeAttribute("value");
  $("doing").textContent = line.total ? `${line.what}: ${line.done} of ${line.total}` : `${line.what}…`;
  const quarter = line.total ? `, ${25 * Math.floor((4 * line.done) / line.total)} percent` : "";
  if ($("spoken").textContent !== line.what + quarter) $("spoken").textContent = line.what + quarter;
}

// A run

async function run() {
  clearErrors();
  let order;
  try {
    order = { ...makeOrder(), method: $("method").value, batch_size: Number($("batch").value) };
    if (!$("batch").validity.valid || !$("batch").value) throw Object.assign(new Error("Batch size: a whole number from 1 to 512."), { stage: "method" });
  } catch (error) {
    preview(); // which says what is wrong with the network
    showError(error.message, error.stage);
    return;
  }
  const mine = (running = new AbortController());
  previewing?.abort();
  clearTimeout(previewTimer);
  setBusy(true);
  result = { rows: [], summary: null, subject: subject(order) };
  let stage = "";
  try {
    progress({ what: "Starting" });
    for await (const line of lines("run", order, mine.signal)) {
      stage = line.stage ?? stage;
      if (line.error) throw Object.assign(new Error(line.error), { stage });
      if (line.what) progress(line);
      if (line.rows) result.rows.push(...line.rows);
      if (line.verdict) result.summary = line;
    }
    if (!result.summary) throw new Error("The program stopped before it had finished.");
    showResult();
    $("spoken").textContent = "Done";
    $("headline").focus({ preventScroll: true });
    const top = $("result").getBoundingClientRect().top;
    if (top < 0 || top > innerHeight / 2) $("result").scrollIntoView();
  } catch (error) {
    if (error.name === "AbortError") {
      showError("Canceled. Nothing of this run was kept.");
    } else showError(error.message, error.stage);
  } finally {
    running = null;
    progress(null);
    setBusy(false);
    preview();
  }
}

function setBusy(busy) {
  $("result").ariaBusy = busy;
  $("empty-title").textContent = busy ? "Working…" : "Press the button";
  $("run").disabled = busy;
  $("run").textContent = busy ? "Working…" : "Compare before and after";
  $("cancel").hidden = !busy;
  if (busy) $("cancel").focus();
  else if (document.activeElement === document.body) $("run").focus();
}

// The result

const KINDS = {
  corrected: ["Corrected", (row) => row.label && row.source_prediction !== row.label && row.adapted_prediction === row.label],
  spoiled: ["Spoiled", (row) => row.label && row.source_prediction === row.label && row.adapted_prediction !== row.label],
  changed: ["Changed", (row) => row.source_prediction !== row.adapted_prediction],
  same: ["Unchanged", () => true],
};
const kindOf = (row) => (row.skipped ? "skipped" : Object.keys(KINDS).find((kind) => KINDS[kind][1](row)));

function showResult() {
  const { summary } = result;
  $("empty").hidden = true;
  $("found").hidden = false;
  $("subject").textContent = result.subject;
  $("verdict").className = summary.verdict.tone;
  $("headline").textContent = summary.verdict.headline;
  $("sentences").replaceChildren(...summary.verdict.sentences.map((text) => element("p", { textContent: text })));
  $("warnings").replaceChildren(...summary.verdict.warnings.map((text) => element("li", { textContent: text })));
  showNumbers(summary);
  showFilter();
  showLayers(Object.entries(summary.alpha));
  $("notes").hidden = !summary.notes.length;
  $("notes").querySelector("ul").replaceChildren(...summary.notes.map((text) => element("li", { textContent: text })));
}

function showNumbers({ images, changed, labeled, right, sure, seconds: took }) {
  const facts = [
    ...(labeled ? [["Accuracy", `${percent(right[0] / labeled)} → ${percent(right[1] / labeled)}`, `on ${plural(labeled, "image")}`]] : []),
    ["Answers changed", `${changed}`, `of ${images}`],
    ["How sure", `${percent(sure[0])} → ${percent(sure[1])}`, "on average; surer is not always right"],
    ["Time", `${(took[1] / took[0]).toFixed(1)} times`, `${seconds(took[1])}; ${seconds(took[0])} without adapting`],
  ];
  $("numbers").replaceChildren(
    ...facts.map(([name, value, more]) =>
      element("div", {}, element("dt", { textContent: name }), element("dd", {}, element("b", { textContent: value }), element("small", { textContent: more }))),
    ),
  );
}

function showFilter() {
  const { rows } = result;
  const count = (kinds) => rows.filter((row) => kinds.includes(kindOf(row))).length;
  const labeled = rows.some((row) => row.label);
  const all = ["corrected", "spoiled", "changed", "same", "skipped"];
  const choices = [
    ["Changed", ["corrected", "spoiled", "changed"]],
    ...(labeled ? [["Corrected", ["corrected"]], ["Spoiled", ["spoiled"]]] : []),
    ["All", all],
    ...(count(["skipped"]) ? [["Left out", ["skipped"]]] : []),
  ];
  const start = count(choices[0][1]) ? 0 : choices.findIndex(([name]) => name === "All");
  $("filter").replaceChildren(
    ...choices.map(([name, kinds], at) => {
      const input = element("input", { type: "radio", name: "filter", checked: at === start });
      input.addEventListener("change", () => showCards(kinds));
      return element("label", {}, input, element("span", { textContent: `${name} ${count(kinds)}` }));
    }),
  );
  showCards(choices[start][1]);
}

function showCards(kinds, most = SHOWN) {
  const rows = result.rows.filter((row) => kinds.includes(kindOf(row)));
  const order = { spoiled: 1, corrected: 0, changed: 2, same: 3, skipped: 4 };
  rows.sort((a, b) => order[kindOf(a)] - order[kindOf(b)]);
  if (kinds.includes("corrected") && kinds.includes("spoiled")) mix(rows);
  $("cards").replaceChildren(...rows.slice(0, most).map(card));
  if (!rows.length) $("cards").append(element("li", { className: "none", textContent: "None." }));
  $("more").hidden = rows.length <= most;
  $("more").textContent = `Show more (${rows.length - most})`;
  $("more").onclick = () => showCards(kinds, most + 4 * SHOWN);
}

// Spread the spoiled answers among the corrected ones, so that the first screen shows both in fair shares.
function mix(rows) {
  const keys = new Map();
  const sizes = {};
  for (const row of rows) sizes[kindOf(row)] = (sizes[kindOf(row)] ?? 0) + 1;
  const seen = {};
  for (const row of rows) {
    const kind = kindOf(row);
    seen[kind] = (seen[kind] ?? 0) + 1;
    keys.set(row, (kind === "same" || kind === "skipped" ? 1 : 0) + (seen[kind] - 0.5) / sizes[kind]);
  }
  rows.sort((a, b) => keys.get(a) - keys.get(b));
}

function card(row) {
  const kind = kindOf(row);
  if (kind === "skipped") return element("li", { className: "none", textContent: `${row.file}: ${row.skipped}` });
  const answer = (name, prediction, confidence) => {
    const mark = row.label ? (prediction === row.label ? " ✓ " : " ✗ ") : " ";
    const rest = element("span", { className: "whole" }, mark, element("small", { textContent: percent(confidence) }));
    return element("span", { className: `answer ${name.toLowerCase()}` }, `${name} `, element("b", { textContent: prediction }), rest);
  };
  const tag = kind === "changed" && row.label ? "Still wrong" : KINDS[kind][0];
  return element(
    "li",
    { className: kind, title: row.file },
    picture(row.picture, row.file),
    element(
      "div",
      {},
      element("span", { className: "tag", textContent: tag + (row.label ? ` · is ${row.label}` : "") }),
      answer("Before", row.source_prediction, row.source_confidence),
      answer("After", row.adapted_prediction, row.adapted_confidence),
    ),
  );
}

function showLayers(layers) {
  $("layers").hidden = !layers.length;
  const bars = layers.map(([name, alpha]) => {
    const training = element("i");
    training.style.height = percent(alpha);
    return element("span", { title: `${name}: ${percent(alpha)} from training` }, training);
  });
  $("bars").replaceChildren(...bars);
  const mean = layers.reduce((sum, [, alpha]) => sum + alpha, 0) / layers.length;
  $("bars").ariaLabel = `${plural(layers.length, "layer")}; on average ${percent(mean)} from training`;
  $("layers").querySelector("tbody").replaceChildren(
    ...layers.map(([name, alpha]) => element("tr", {}, element("td", { textContent: name }), element("td", { textContent: alpha.toFixed(3) }))),
  );
}

// Downloads

function save(blob, name) {
  const link = element("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function saveTable() {
  const columns = ["file", "label", "source_prediction", "source_confidence", "adapted_prediction", "adapted_confidence", "skipped"];
  const cell = (value) => (/[",\r\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
  const rows = [...result.rows].sort((a, b) => (a.file < b.file ? -1 : 1));
  const table = [columns, ...rows.map((row) => columns.map((name) => cell(String(row[name] ?? ""))))];
  save(new Blob([table.map((row) => row.join(",") + "\r\n").join("")], { type: "text/csv" }), "predictions.csv");
}

async function saveCheckpoint() {
  $("download-error").hidden = true;
  const label = $("checkpoint").textContent;
  $("checkpoint").disabled = true;
  $("checkpoint").textContent = "Calibrating…";
  try {
    const answer = await ask(`checkpoint?run=${result.summary.run}`, { method: "POST" });
    save(await answer.blob(), "calibrated.safetensors");
  } catch (error) {
    $("download-error").textContent = error.message;
    $("download-error").hidden = false;
  }
  $("checkpoint").textContent = label;
  $("checkpoint").disabled = false;
}

// Controls

function showChoices() {
  const demo = chosen("network") === "demo";
  if (!demo && chosen("images") === "sample") form.elements.images.value = "own";
  $("sample-choice").hidden = !demo;
  $("other-network").hidden = chosen("network") !== "other";
  $("sample-images").hidden = chosen("images") !== "sample";
  $("own-images").hidden = chosen("images") !== "own";
  $("first-look").hidden = !demo || chosen("images") !== "sample";
  $("severity-row").hidden = !$("corruption").value;
  $("severity-value").textContent = `${$("severity").value} of 5`;
  $("severity").ariaValueText = $("severity-value").textContent;
  $("method-words").textContent = about.methods.find(({ name }) => name === $("method").value)?.summary ?? "";
}

function fill() {
  if (about.given) {
    $("given-choice").hidden = false;
    $("given").value = about.given;
    $("given").checked = true;
    $("given-name").textContent = about.given.split("/").pop();
  }
  $("files").replaceChildren(...about.files.map((file) => option(file, "")));
  $("style").replaceChildren(...about.styles.map((style) => option(style, style === about.held_out ? `${style}: new to the network` : `${style}: known from training`)));
  for (const [label, names] of Object.entries(GROUPS)) {
    $("corruption").append(element("optgroup", { label }, ...names.filter((name) => about.corruptions.includes(name)).map((name) => option(name, words(name)))));
  }
  $("method").replaceChildren(...about.methods.map(({ name }) => option(name, name)));
}

function listen() {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!running) run();
  });
  form.addEventListener("change", (event) => {
    if (event.target.type === "file") return;
    showChoices();
    if (!["method", "batch"].includes(event.target.id)) {
      clearErrors();
      preview();
    }
  });
  $("severity").addEventListener("input", () => (showChoices(), preview()));
  $("cancel").addEventListener("click", () => running?.abort());
  for (const id of ["folder", "images"]) {
    $(id).addEventListener("change", () => {
      const files = [...$(id).files].map((file) => ({ file, name: file.webkitRelativePath || file.name }));
      $(id).value = ""; // so that choosing the same again is noticed
      if (files.length) addImages(files);
    });
  }
  document.addEventListener("dragover", (event) => (event.preventDefault(), $("drop").classList.add("over")));
  document.addEventListener("dragleave", (event) => event.relatedTarget ?? $("drop").classList.remove("over"));
  document.addEventListener("drop", async (event) => {
    event.preventDefault();
    $("drop").classList.remove("over");
    const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
    if (!entries.length) return;
    try {
      addImages((await Promise.all(entries.map((entry) => filesOf(entry, "")))).flat());
    } catch {
      showError("The browser cannot read what was dropped. Use the buttons instead.", "images");
    }
  });
  $("table").addEventListener("click", saveTable);
  $("checkpoint").addEventListener("click", saveCheckpoint);
}

about = await (await ask("about")).json();
fill();
listen();
showChoices();
preview();
document.body.dataset.ready = "yes";
