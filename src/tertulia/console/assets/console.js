/* The script of the console: makes pages live, and adds keys and the theme.
   Without it every page can still be read, and every button works. */
(() => {
  "use strict";

  // Text becomes markup only here: htmx puts in what our own server has written. Nothing is ever evaluated.
  const refuse = () => { throw new Error("refused"); };
  htmx.registerExtension("console", {
    init(api) {
      const policy = window.trustedTypes
        ? window.trustedTypes.createPolicy("htmx", { createHTML: (text) => text })
        : null;
      api.initSecurity(policy, refuse, refuse);
    },
  });

  const $ = (selector, root = document) => root.querySelector(selector);
  const setCookie = (name, value) => {
    document.cookie = `${name}=${value}; path=/console; max-age=31536000; SameSite=Strict`;
  };

  // -- sign-in: the code stands after #, which is never sent
  const enter = $("#enter");
  if (enter) {
    const code = decodeURIComponent(location.hash.slice(1));
    if (code) {
      history.replaceState(null, "", location.pathname + location.search);
      $("#code").value = code;
      enter.requestSubmit();
    }
    return;
  }

  // -- is the page live?
  const STILL_MS = 35000;
  let stillTimer = null;
  const clockText = () => new Date().toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  const setLiveness = (text) => {
    const element = $("#liveness");
    if (element && element.textContent !== text) element.textContent = text;
  };
  const expectSign = () => {
    clearTimeout(stillTimer);
    stillTimer = setTimeout(() => reconnect(), STILL_MS);
  };
  const alive = () => {
    setLiveness("Live.");
    expectSign();
  };
  let lostSince = null;
  const live = () => {
    lostSince = null;
    setLiveness("Live.");
  };
  const lost = () => {
    lostSince ??= clockText();
    setLiveness(`Not live since ${lostSince}; trying again.`);
  };
  const reconnect = () => {
    const element = $("#live");
    if (!element || document.hidden) return;
    lost();
    const fresh = element.cloneNode(false);
    fresh.removeAttribute("data-htmx-powered");
    if (element.dataset.last) {
      const address = new URL(element.getAttribute("hx-sse:connect"), location.href);
      address.searchParams.set("since", element.dataset.last); // not what the page began with
      fresh.setAttribute("hx-sse:connect", address.pathname + address.search);
    }
    element.replaceWith(fresh);
    htmx.process(fresh);
  };
  document.addEventListener("htmx:sse:after:connection", () => { lostSince = null; alive(); });
  document.addEventListener("htmx:sse:before:message", (event) => {
    const message = event.detail.message;
    const element = $("#live");
    if (element && message.id) element.dataset.last = message.id;
    alive();
    if (message.event === "failed") {
      event.preventDefault();
      ended(message.data);
    }
    if (!message.event) rememberScroll();
  });
  document.addEventListener("htmx:sse:after:message", () => { restoreScroll(); markRow(); });
  document.addEventListener("htmx:sse:error", (event) => {
    const status = event.detail.status;
    if (status === 401 || status === 403) ended("unauthorized");
    else lost();
  });
  const ended = (code) => {
    clearTimeout(stillTimer);
    const element = $("#live");
    if (element) element.remove();
    const isOut = code === "unauthorized";
    setLiveness(isOut ? "Signed out." : "Not live any more: load the page again.");
    if (isOut) notify("You are signed out; what stands here may be old.", "Sign in again", `/console/enter?to=${encodeURIComponent(location.pathname + location.search)}`);
  };
  const notify = (text, label, href) => {
    const box = document.createElement("div");
    box.className = "notice bad";
    const line = document.createElement("p");
    line.textContent = text;
    box.append(line);
    if (href) {
      const link = document.createElement("a");
      link.href = href;
      link.textContent = label;
      box.append(link);
    }
    $("#notice")?.replaceChildren(...(text ? [box] : []));
  };
  // A stream that is replaced by another one is cut off; that is no error.
  addEventListener("unhandledrejection", (event) => {
    if (event.reason?.name === "AbortError") event.preventDefault();
  });
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && $("#live")) expectSign();
  });

  // -- nothing moves under the pointer: who reads at the end of a transcript stays at its end
  // The end of a chat is its field, above what covers the bottom of a phone; else that of the page.
  const belowEnd = () => {
    const chat = $("#chat"), root = document.scrollingElement, side = $(".side");
    if (!chat) return root.scrollHeight - root.scrollTop - innerHeight;
    const covered = getComputedStyle(side).position === "fixed" ? side.offsetHeight : 0;
    return chat.getBoundingClientRect().bottom + covered - innerHeight;
  };
  const toEnd = () => scrollBy(0, Math.max(0, belowEnd()));
  let atEnd = false;
  let anchor = null;
  let focused = null;
  const rememberScroll = () => {
    focused = document.activeElement;
    atEnd = belowEnd() < 80 && !!$(".transcript");
    anchor = null;
    if (!atEnd) {
      const kept = ":is(.entry, .rows > li, .card)[id]";
      const topOf = (element) => element.getBoundingClientRect().top;
      const all = [...document.querySelectorAll(kept)];
      const element = $(`${kept}:hover`) ?? $(`${kept}:focus-within`) ?? all.find((each) => topOf(each) >= 0);
      if (element) anchor = { id: element.id, top: topOf(element) };
    }
  };
  const restoreScroll = () => {
    // What was moved has lost the focus, though it is the same element.
    if (document.activeElement === document.body && focused?.isConnected) focused.focus({ preventScroll: true });
    if (atEnd) toEnd();
    else if (anchor) {
      const element = document.getElementById(anchor.id);
      if (element) scrollBy(0, element.getBoundingClientRect().top - anchor.top);
    }
  };

  // -- a double click does a thing once: the button may be another one by the second click
  document.addEventListener("click", (event) => {
    if (event.detail > 1 && event.target.closest("button, summary")) {
      event.preventDefault();
      event.stopPropagation();
    }
  }, true);

  // -- waiting
  const isQuiet = (element) => element.id === "live" || element.id === "counts";
  document.addEventListener("htmx:before:request", (event) => {
    if (!isQuiet(event.target)) document.body.classList.add("busy");
  });
  document.addEventListener("htmx:finally:request", () => document.body.classList.remove("busy"));
  document.addEventListener("htmx:error", (event) => {
    if (event.target.id === "live") lost();
    if (isQuiet(event.target)) return;
    document.body.classList.remove("busy");
    notify("The gateway did not answer. Nothing was lost: try again in a moment.");
  });

  // -- theme and keys
  $("#theme")?.addEventListener("change", (event) => {
    const value = event.target.value;
    setCookie("tertulia_theme", value);
    if (value) document.documentElement.dataset.theme = value;
    else delete document.documentElement.dataset.theme;
  });
  const help = $("#help");
  $("#help-open")?.addEventListener("click", () => help.showModal());
  $("#keys")?.addEventListener("change", (event) => {
    document.body.dataset.keys = event.target.checked ? "on" : "off";
    setCookie("tertulia_keys", document.body.dataset.keys);
  });

  let row = -1;
  let lastKey = "";
  const rows = () => [...document.querySelectorAll(".rows > li, .transcript > .entry")];
  const markRow = () => {
    rows().forEach((element, index) => element.classList.toggle("at", index === row));
  };
  const moveRow = (step) => {
    const all = rows();
    if (!all.length) return;
    row = Math.max(0, Math.min(all.length - 1, row + step));
    markRow();
    const target = $("a, button, summary", all[row]) || all[row];
    target.focus({ preventScroll: true });
    all[row].scrollIntoView({ block: "nearest" });
  };
  const press = (element) => { element?.click(); return !!element; };
  const handleKey = (key) => {
    if (lastKey === "g") {
      lastKey = "";
      return press($(`.side a[data-key="${CSS.escape(key)}"]`));
    }
    if (key === "g") { lastKey = "g"; return true; }
    if (key === "/") {
      const field = $('main [type="search"]');
      if (field) field.focus(); else location.href = "/console/search";
      return true;
    }
    if (key === "j") { moveRow(1); return true; }
    if (key === "k") { moveRow(-1); return true; }
    if (key === "?") { help.showModal(); return true; }
    if (key === "u") return press($("#notice button"));
    if ("[]twpr".includes(key)) return press($(`main [data-key="${CSS.escape(key)}"]`));
    return false;
  };
  document.addEventListener("keydown", (event) => {
    if (document.body.dataset.keys === "off" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, textarea, select, dialog, [contenteditable]")) return;
    if (event.key.length === 1 && handleKey(event.key)) event.preventDefault();
    else if (event.key !== "Shift") lastKey = "";
  });

  // -- erasing wants the title typed
  document.addEventListener("input", (event) => {
    const wanted = event.target.dataset?.confirm;
    if (wanted === undefined) return;
    event.target.form.querySelector("button").disabled = event.target.value.trim() !== wanted.trim();
  });

  // -- copying: the texts of elements, as one JSON list
  if (navigator.clipboard) document.querySelectorAll("[data-copy]").forEach((button) => { button.hidden = false; });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const texts = [...document.querySelectorAll(button.dataset.copy)].map((element) => element.textContent);
    navigator.clipboard.writeText(`[${texts.join(",\n")}]`).then(() => { button.textContent = "Copied"; });
  });

  // What the script of the chat uses.
  window.consolePage = { $, live, lost, ended, notify, rememberScroll, restoreScroll, toEnd };
})();
