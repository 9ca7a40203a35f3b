// Optional enhancements; the pages work without script: search while typing, relative times,
// copy buttons, live changes, files dropped on the form, and trying operations of the API.
"use strict";

(() => {
  const DEBOUNCE_MS = 120;
  const REFRESH_MS = 800;
  const found = () => document.getElementById("found");
  const queryInput = document.getElementById("q");

  // Escape characters that reorder or hide text, as the server does.
  const escapeInvisible = (text) =>
    text.replace(/[^ \P{Z}]|\p{C}/gu, (char) => "\\u" + char.codePointAt(0).toString(16).padStart(4, "0"));

  // --- Times ------------------------------------------------------------------------------------
  const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
  const UNITS = [["year", 31557600], ["month", 2629800], ["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];

  const lasting = (count, unit) =>
    "for " + new Intl.NumberFormat("en", { style: "unit", unit, unitDisplay: "long" }).format(Math.max(count, 0));

  function showRelativeTimes(within = document) {
    for (const element of within.querySelectorAll("time[datetime]")) {
      const seconds = (Date.parse(element.dateTime) - Date.now()) / 1000;
      const [unit, size] = UNITS.find(([, size]) => Math.abs(seconds) >= size) || UNITS.at(-1);
      if (!element.title) element.title = element.textContent;
      const count = Math.round(seconds / size);
      element.textContent = element.hasAttribute("data-since") ? lasting(-count, unit) : relative.format(count, unit);
    }
  }

  // --- Search -----------------------------------------------------------------------------------
  let activeRequest = null;

  async function loadResults(url, mode) {
    if (activeRequest) activeRequest.abort();
    const request = (activeRequest = new AbortController());
    const place = new URL(url, location.href);
    const part = new URL(place);
    part.searchParams.set("part", "found");
    found().setAttribute("aria-busy", "true");
    try {
      const response = await fetch(part, { signal: request.signal, credentials: "same-origin" });
      if (response.status === 429 || response.status === 503) {
        const seconds = Math.min(Number(response.headers.get("retry-after")) || 1, 30);
        setTimeout(() => activeRequest || loadResults(url, mode), seconds * 1000);
        return;
      }
      if (!response.ok) {
        if (mode !== "quietly") location.assign(place);
        return;
      }
      found().outerHTML = await response.text(); // rendered by the server, which escapes every text
      document.getElementById("search-status").textContent = found().dataset.status;
      showRelativeTimes(found());
      keepFilters(place);
      document.body.classList.toggle("searching", place.search.length > 1);
      if (mode === "push") history.pushState(null, "", place);
      else if (mode === "replace") history.replaceState(null, "", place);
    } catch (error) {
      if (error.name !== "AbortError") found().removeAttribute("aria-busy");
    } finally {
      if (activeRequest === request) activeRequest = null;
    }
  }

  // Submit the filters shown on the page with the form.
  function keepFilters(place) {
    for (const old of queryInput.form.querySelectorAll("input[type=hidden]")) old.remove();
    for (const [name, value] of place.searchParams) {
      if (!["tag", "protocol", "status", "sort"].includes(name)) continue;
      const field = document.createElement("input");
      Object.assign(field, { type: "hidden", name, value });
      queryInput.form.append(field);
    }
  }

  function searchAsTyped() {
    let timer = 0;
    const search = () => {
      const place = new URL("/", location.href);
      for (const [name, value] of new FormData(queryInput.form)) if (value.trim()) place.searchParams.append(name, value);
      return loadResults(place, "replace");
    };
    queryInput.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(search, DEBOUNCE_MS);
    });
    queryInput.form.addEventListener("submit", (event) => {
      event.preventDefault();
      clearTimeout(timer);
      search();
    });
    document.addEventListener("click", (event) => {
      const link = event.target.closest("#found a[href^='/?'], #found a[href='/'], .try a");
      if (!link || event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
      event.preventDefault();
      const place = new URL(link.href);
      queryInput.value = place.searchParams.get("q") || "";
      const again = link.closest(".filters") && `.filters a .value`;
      const value = link.querySelector(".value")?.textContent;
      loadResults(place, "push").then(() => {
        if (!again) return;
        const same = [...found().querySelectorAll(again)].find((each) => each.textContent === value);
        same?.closest("a").focus();
      });
    });
    addEventListener("popstate", () => {
      queryInput.value = new URL(location.href).searchParams.get("q") || "";
      loadResults(location.href, "keep");
    });
    document.addEventListener("keydown", (event) => {
      if (event.key !== "/" || event.ctrlKey || event.metaKey || event.target.closest("input, textarea, select")) return;
      event.preventDefault();
      queryInput.focus();
      queryInput.select();
    });
  }

  // --- Copying ----------------------------------------------------------------------------------
  async function copy(button) {
    const code = button.parentElement.querySelector("pre");
    try {
      await navigator.clipboard.writeText(code.textContent);
    } catch {
      const range = document.createRange();
      range.selectNodeContents(code);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      document.execCommand("copy");
    }
    button.textContent = "Copied";
    button.classList.add("done");
    setTimeout(() => {
      button.textContent = "Copy";
      button.classList.remove("done");
    }, 1600);
  }

  for (const button of document.querySelectorAll(".copy")) {
    button.hidden = false;
    button.addEventListener("click", () => copy(button));
  }

  // --- Live changes -----------------------------------------------------------------------------
  // Browsers allow few connections per host, so only a visible page keeps one open.
  function follow(feed) {
    const most = Number(feed.dataset.most);
    let source = null;
    let cursor = "";
    let timer = 0;
    // Do not replace results while the user types, reads the evidence of one or has focused one of them.
    const isInUse = () =>
      activeRequest ||
      queryInput.value.trim() !== (new URL(location.href).searchParams.get("q") || "") ||
      document.querySelector("details.reasons[open], details.weak-matches[open]") ||
      found().contains(document.activeElement);
    const refresh = () => {
      clearTimeout(timer);
      if (!found() || location.search.includes("cursor=")) return;
      timer = setTimeout(() => (isInUse() ? refresh() : loadResults(location.href, "quietly")), REFRESH_MS);
    };
    const onChange = (event) => {
      cursor = event.lastEventId;
      const change = JSON.parse(event.data);
      feed.querySelector(".none")?.remove();
      for (const line of [...feed.children]) if (line.dataset.id === change.id) line.remove();
      feed.prepend(changeLine(change));
      while (feed.children.length > most) feed.lastElementChild.remove();
      refresh();
    };
    const open = () => {
      source = new EventSource(`${feed.dataset.stream}?include=agent${cursor && `&from=${encodeURIComponent(cursor)}`}`);
      for (const kind of ["registered", "updated", "withdrawn", "expired"]) source.addEventListener(kind, onChange);
      source.addEventListener("bookmark", (event) => (cursor = event.lastEventId));
      source.addEventListener("error", () => {
        if (source.readyState !== EventSource.CLOSED) return; // otherwise the browser reconnects
        cursor = "";
        setTimeout(() => document.hidden || source.readyState !== EventSource.CLOSED || open(), 5000);
      });
    };
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) return source.close();
      if (!cursor) refresh();
      open();
    });
    addEventListener("pagehide", () => source.close());
    addEventListener("pageshow", (event) => event.persisted && open());
    open();
  }

  function changeLine(change) {
    const line = document.createElement("li");
    line.className = "new";
    line.dataset.id = change.id;
    const kind = document.createElement("span");
    kind.className = `kind ${change.type}`;
    kind.textContent = change.type;
    const name = document.createElement(change.agent ? "a" : "span");
    name.className = "name";
    name.textContent = escapeInvisible(change.agent?.name || change.id);
    if (change.agent) name.href = `/a/${encodeURIComponent(change.id)}`;
    const time = document.createElement("time");
    time.dateTime = change.at;
    time.textContent = `${change.at.slice(0, 16).replace("T", " ")} UTC`;
    line.append(kind, " ", name, " ", time);
    showRelativeTimes(line);
    return line;
  }

  // --- Registering ------------------------------------------------------------------------------
  function fillForm(area) {
    const drop = area.closest(".drop");
    const most = Number(area.dataset.most);
    document.querySelector(".example-buttons").hidden = false;
    document.addEventListener("click", (event) => {
      const number = event.target.dataset?.example;
      if (!number) return;
      area.value = document.querySelector(`#example-${number} code`).textContent;
      area.focus();
    });
    const isFile = (event) => event.dataTransfer?.types.includes("Files");
    drop.addEventListener("dragover", (event) => {
      if (!isFile(event)) return;
      event.preventDefault();
      drop.classList.add("over");
    });
    drop.addEventListener("dragleave", () => drop.classList.remove("over"));
    drop.addEventListener("drop", async (event) => {
      if (!isFile(event)) return;
      event.preventDefault();
      drop.classList.remove("over");
      const [file] = event.dataTransfer.files;
      if (file && file.size <= most) area.value = await file.text();
    });
  }

  // --- Trying operations of the API -------------------------------------------------------------
  const SHOWN_CHARS = 20000;

  function requestOf(form) {
    let path = form.dataset.path;
    const query = new URLSearchParams();
    const headers = {};
    for (const field of form.querySelectorAll("input")) {
      const value = field.value.trim();
      if (field.dataset.place === "path") path = path.replace(`{${field.name}}`, encodeURIComponent(value));
      else if (!value) continue;
      else if (field.dataset.place === "header") headers[field.name] = value;
      else query.append(field.name, value);
    }
    const token = document.getElementById("try-token").value.trim();
    if (token) headers.Authorization = `Bearer ${token}`;
    const body = form.querySelector("textarea")?.value;
    if (body !== undefined) headers["Content-Type"] = form.dataset.type;
    const address = query.size ? `${path}?${query}` : path;
    return [address, { method: form.dataset.method, headers, body, credentials: "omit" }];
  }

  async function tryOperation(form) {
    const shown = form.querySelector(".outcome");
    shown.hidden = false;
    shown.textContent = "…";
    try {
      const began = performance.now();
      const response = await fetch(...requestOf(form));
      let text = await response.text();
      if (response.headers.get("content-type")?.includes("json")) {
        try {
          text = JSON.stringify(JSON.parse(text), null, 2);
        } catch {
          // JSON lines, or not JSON: shown as it is
        }
      }
      const took = Math.round(performance.now() - began);
      shown.textContent = `${response.status} ${response.statusText} · ${took} ms\n\n${text.slice(0, SHOWN_CHARS)}`;
    } catch (error) {
      shown.textContent = String(error);
    }
  }

  function offerTrials(forms) {
    document.querySelector(".credential").hidden = false;
    for (const form of forms) {
      form.closest("details").hidden = false;
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        tryOperation(form);
      });
    }
  }

  document.documentElement.classList.add("scripted");
  showRelativeTimes();
  setInterval(showRelativeTimes, 30000);
  if (queryInput && found()) searchAsTyped();
  const area = document.querySelector(".drop textarea");
  if (area) fillForm(area);
  const trials = document.querySelectorAll(".try-it");
  if (trials.length) offerTrials(trials);
  const feed = document.querySelector("[data-stream]");
  if (feed) follow(feed);
})();
