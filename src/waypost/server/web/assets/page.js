// What a script adds to pages that are whole without it: results as one types, times as people say them, copying, news.
"use strict";

(() => {
  const DEBOUNCE_MS = 120;
  const REFRESH_MS = 800;
  const found = () => document.getElementById("found");
  const box = document.getElementById("q");

  // Characters that turn or hide text are shown as what they are, as the server does.
  const shown = (text) =>
    text.replace(/[^ \P{Z}]|\p{C}/gu, (char) => "\\u" + char.codePointAt(0).toString(16).padStart(4, "0"));

  // --- Times ------------------------------------------------------------------------------------
  const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto", style: "short" });
  const UNITS = [["year", 31557600], ["month", 2629800], ["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];

  function tellTimes(within = document) {
    for (const element of within.querySelectorAll("time[datetime]")) {
      const seconds = (Date.parse(element.dateTime) - Date.now()) / 1000;
      const [unit, size] = UNITS.find(([, size]) => Math.abs(seconds) >= size) || UNITS.at(-1);
      if (!element.title) element.title = element.textContent;
      element.textContent = relative.format(Math.round(seconds / size), unit);
    }
  }

  // --- Search -----------------------------------------------------------------------------------
  let asking = null;

  async function show(url, how) {
    if (asking) asking.abort();
    const mine = (asking = new AbortController());
    const place = new URL(url, location.href);
    const part = new URL(place);
    part.searchParams.set("part", "found");
    found().setAttribute("aria-busy", "true");
    try {
      const answer = await fetch(part, { signal: mine.signal, credentials: "same-origin" });
      if (answer.status === 429 || answer.status === 503) {
        const seconds = Math.min(Number(answer.headers.get("retry-after")) || 1, 30);
        setTimeout(() => asking || show(url, how), seconds * 1000);
        return;
      }
      if (!answer.ok) {
        if (how !== "quietly") location.assign(place);
        return;
      }
      found().outerHTML = await answer.text(); // written by the server, where every text is escaped
      document.getElementById("told").textContent = found().dataset.told;
      tellTimes(found());
      keepFilters(place);
      if (how === "push") history.pushState(null, "", place);
      else if (how === "replace") history.replaceState(null, "", place);
    } catch (error) {
      if (error.name !== "AbortError") found().removeAttribute("aria-busy");
    } finally {
      if (asking === mine) asking = null;
    }
  }

  // The form asks with the filters that are shown.
  function keepFilters(place) {
    for (const old of box.form.querySelectorAll("input[type=hidden]")) old.remove();
    for (const [name, value] of place.searchParams) {
      if (!["tag", "protocol", "status"].includes(name)) continue;
      const field = document.createElement("input");
      Object.assign(field, { type: "hidden", name, value });
      box.form.append(field);
    }
  }

  function searchAsTyped() {
    let waiting = 0;
    const ask = () => {
      const place = new URL("/", location.href);
      for (const [name, value] of new FormData(box.form)) if (value.trim()) place.searchParams.append(name, value);
      return show(place, "replace");
    };
    box.addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(ask, DEBOUNCE_MS);
    });
    box.form.addEventListener("submit", (event) => {
      event.preventDefault();
      clearTimeout(waiting);
      ask();
    });
    document.addEventListener("click", (event) => {
      const link = event.target.closest("#found a[href^='/?'], #found a[href='/']");
      if (!link || event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
      event.preventDefault();
      const place = new URL(link.href);
      box.value = place.searchParams.get("q") || "";
      const again = link.closest(".filters") && `.filters a .value`;
      const value = link.querySelector(".value")?.textContent;
      show(place, "push").then(() => {
        if (!again) return;
        const same = [...found().querySelectorAll(again)].find((each) => each.textContent === value);
        same?.closest("a").focus();
      });
    });
    addEventListener("popstate", () => {
      box.value = new URL(location.href).searchParams.get("q") || "";
      show(location.href, "keep");
    });
    document.addEventListener("keydown", (event) => {
      if (event.key !== "/" || event.ctrlKey || event.metaKey || event.target.closest("input, textarea, select")) return;
      event.preventDefault();
      box.focus();
      box.select();
    });
  }

  // --- What opens closes again ------------------------------------------------------------------
  const POPS = "details.trust[open], details.reasons[open]";
  document.addEventListener("click", (event) => {
    for (const open of document.querySelectorAll(POPS)) if (!open.contains(event.target)) open.open = false;
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    for (const open of document.querySelectorAll(POPS)) {
      open.open = false;
      open.querySelector("summary").focus();
    }
  });

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

  // --- News -------------------------------------------------------------------------------------
  // A browser keeps few connections to one host, so only a page that is looked at holds one.
  function follow(feed) {
    const most = Number(feed.dataset.most);
    let source = null;
    let cursor = "";
    let waiting = 0;
    // Results are not changed under the eyes or the fingers of somebody who is at them.
    const isInUse = () =>
      asking ||
      box.value.trim() !== (new URL(location.href).searchParams.get("q") || "") ||
      document.querySelector(POPS) ||
      found().contains(document.activeElement);
    const refresh = () => {
      clearTimeout(waiting);
      if (!found() || location.search.includes("cursor=")) return;
      waiting = setTimeout(() => (isInUse() ? refresh() : show(location.href, "quietly")), REFRESH_MS);
    };
    const take = (event) => {
      cursor = event.lastEventId;
      const change = JSON.parse(event.data);
      feed.querySelector(".none")?.remove();
      for (const line of [...feed.children]) if (line.dataset.id === change.id) line.remove();
      feed.prepend(lineOf(change));
      while (feed.children.length > most) feed.lastElementChild.remove();
      refresh();
    };
    const open = () => {
      source = new EventSource(`${feed.dataset.stream}?include=agent${cursor && `&from=${encodeURIComponent(cursor)}`}`);
      for (const kind of ["registered", "updated", "withdrawn", "expired"]) source.addEventListener(kind, take);
      source.addEventListener("bookmark", (event) => (cursor = event.lastEventId));
      source.addEventListener("error", () => {
        if (source.readyState !== EventSource.CLOSED) return; // else it comes back by itself
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

  function lineOf(change) {
    const line = document.createElement("li");
    line.className = "new";
    line.dataset.id = change.id;
    const kind = document.createElement("span");
    kind.className = `kind ${change.type}`;
    kind.textContent = change.type;
    const name = document.createElement(change.agent ? "a" : "span");
    name.className = "name";
    name.textContent = shown(change.agent?.name || change.id);
    if (change.agent) name.href = `/a/${encodeURIComponent(change.id)}`;
    const time = document.createElement("time");
    time.dateTime = change.at;
    time.textContent = `${change.at.slice(0, 16).replace("T", " ")} UTC`;
    line.append(kind, " ", name, " ", time);
    tellTimes(line);
    return line;
  }

  document.documentElement.classList.add("scripted");
  tellTimes();
  setInterval(tellTimes, 30000);
  if (box && found()) searchAsTyped();
  const feed = document.querySelector("[data-stream]");
  if (feed) follow(feed);
})();
