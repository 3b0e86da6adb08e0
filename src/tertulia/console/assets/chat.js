/* The script of the chat; console.js stands before it. */
(() => {
  "use strict";
  const { $, setLiveness, lost, ended, notify, rememberScroll, restoreScroll, toEnd } = window.consolePage;
  const root = $("#chat");
  if (!root) return;
  const draft = $("#draft");
  const compose = $("#compose");
  const field = $("#say");
  const commands = $("#commands");
  let known = [];
  let chosen = 0;
  const newId = () => crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;
  const idField = compose.elements.message_id;
  idField.value = newId();

  // Answers to commands have headings in Markdown; here nothing else of it is shown.
  const boldParts = (text) => text.split(/\*\*([^*\n]+)\*\*/).map((part, index) => {
    if (index % 2 === 0) return part;
    const strong = document.createElement("strong");
    strong.textContent = part;
    return strong;
  });
  const bubble = (side, name, text) => {
    const item = document.createElement("li");
    item.className = `entry ${side}`;
    const by = document.createElement("div");
    by.className = "by";
    const who = document.createElement("bdi");
    who.className = "name";
    who.textContent = name;
    by.append(who);
    const words = document.createElement("div");
    words.className = "words";
    words.dir = "auto";
    const paragraph = document.createElement("p");
    paragraph.className = "plain";
    paragraph.append(...boldParts(text));
    words.append(paragraph);
    item.append(by, words);
    return { item, paragraph };
  };

  // Events only say that something happened; what was said comes from the store.
  let loading = null;
  const reads = root.dataset.reads === "yes";
  const refresh = () => {
    if (!reads) return;
    loading ??= setTimeout(async () => {
      loading = null;
      rememberScroll();
      await htmx.ajax("GET", "/console/chat?part=chat", { source: root, target: "#live_chat", swap: "innerMorph" });
      restoreScroll();
      dropRepeated();
    }, 60);
  };
  // What a command answered stays in view; an answer of the agent is in the transcript already.
  const dropRepeated = () => {
    const answers = root.querySelectorAll("#live_chat .entry.agent .words");
    const last = answers[answers.length - 1]?.textContent.trim();
    for (const item of draft.querySelectorAll(".entry.note")) {
      if ($(".words", item).textContent.trim() === last) item.remove();
    }
  };
  // Files travel inside the form, encoded. What is too much is refused here, before it is sent.
  let files = [];
  const pick = $("#pick");
  const setFiles = (list) => {
    files = list;
    if (!pick) return;
    compose.elements.files.value = files.length ? JSON.stringify(files) : "";
    field.required = !files.length;
    $("#picked").replaceChildren(...files.map((file, index) => {
      const item = document.createElement("li");
      const name = document.createElement("bdi");
      name.textContent = file.name;
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = "Remove";
      button.setAttribute("aria-label", `Remove ${file.name}`);
      button.addEventListener("click", () => { setFiles(files.filter((_, other) => other !== index)); field.focus(); });
      item.append(name, button);
      return item;
    }));
  };
  const encode = (file) => new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve({ name: file.name.slice(-200), data: reader.result.slice(reader.result.indexOf(",") + 1) });
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
  const addFiles = async (list) => {
    const added = [...list];
    const size = added.reduce((sum, file) => sum + file.size, 0) + files.reduce((sum, file) => sum + file.data.length * 0.75, 0);
    const max = Number(pick.dataset.max);
    const problem = size > max ? `Files of at most ${(max / 1e6).toFixed(1)} MB fit into a message.`
      : files.length + added.length > 10 ? "At most 10 files fit into a message." : null;
    notify(problem ?? "");
    if (problem) return;
    try { setFiles([...files, ...await Promise.all(added.map(encode))]); } catch { notify("The file could not be read."); }
  };
  if (pick) {
    $("#attach").addEventListener("click", () => pick.click());
    pick.addEventListener("change", async () => { await addFiles(pick.files); pick.value = ""; field.focus(); });
    field.addEventListener("paste", (event) => {
      if (event.clipboardData.files.length) { event.preventDefault(); addFiles(event.clipboardData.files); }
    });
  }

  let current = null;
  // A tab in the background lets its stream go: a browser has six connections for a host.
  let source = null;
  const handlers = {};
  const on = (name, handle) => {
    handlers[name] = (event) => handle(event.data ? JSON.parse(event.data) : {});
  };
  const connect = () => {
    source = new EventSource(root.dataset.events);
    source.addEventListener("open", () => { setLiveness("Live."); refresh(); });
    source.addEventListener("error", () => {
      lost();
      if (source?.readyState === EventSource.CLOSED) setTimeout(resume, 2000);
    });
    for (const name in handlers) source.addEventListener(name, handlers[name]);
  };
  // A browser gives a refused stream up, and does not tell why: an address that leads to sign-in does.
  const resume = async () => {
    try {
      const reply = await fetch("/console/chat?part=chat", { redirect: "manual" });
      if (reply.type === "opaqueredirect") { ended("unauthorized"); return; }
    } catch { /* there is no connection: try again */ }
    if (source?.readyState === EventSource.CLOSED && !document.hidden) connect();
  };
  document.addEventListener("visibilitychange", () => {
    source?.close();
    source = null;
    if (!document.hidden) connect();
  });
  on("began", () => { current = null; });
  on("delta", (data) => {
    if (!current) {
      current = bubble("agent", "Agent", "");
      current.item.classList.add("dots");
      draft.append(current.item);
    }
    current.paragraph.textContent += data.text ?? "";
    toEnd();
  });
  on("ended", () => { current = null; refresh(); });
  on("message", (data) => {
    current = null;
    const isReply = draft.dataset.command === "yes";
    if (reads) draft.replaceChildren();
    else draft.querySelectorAll(".dots").forEach((item) => item.remove());
    if (isReply || !reads) {
      draft.append(bubble(isReply ? "note" : "agent", isReply ? "Tertulia" : "Agent", data.text ?? "").item);
      delete draft.dataset.command;
    }
    refresh();
    toEnd();
  });

  connect();

  // The answer may be here before the request has ended, so the message is shown when it is sent.
  let sent = null;
  const showSent = (text, names) => {
    if (reads) draft.replaceChildren();
    if (text.startsWith("/")) draft.dataset.command = "yes";
    sent = bubble("person", "You", [text, names].filter(Boolean).join("\n")).item;
    draft.append(sent);
    toEnd();
  };
  compose.addEventListener("htmx:before:request", () => {
    showSent(field.value, files.map((file) => file.name).join(", "));
  });
  // The things to try are buttons of their own.
  $("#tries")?.addEventListener("htmx:before:request", (event) => {
    showSent(event.target.elements.text.value, "");
  });
  $("#tries")?.addEventListener("htmx:after:request", (event) => {
    if (event.detail.ctx.response?.raw?.ok) $("#tries").remove();
    else sent?.remove();
  });
  compose.addEventListener("htmx:after:request", (event) => {
    if (!event.detail.ctx.response?.raw?.ok) { sent?.remove(); return; }
    $("#tries")?.remove();
    field.value = "";
    idField.value = newId();
    setFiles([]);
    hide();
  });
  compose.addEventListener("htmx:error", () => sent?.remove());
  $("#turn-acts").addEventListener("htmx:before:request", () => { draft.dataset.command = "yes"; });
  const hide = () => { commands.hidden = true; };
  const complete = (name) => { field.value = `/${name} `; hide(); field.focus(); };
  const show = () => {
    const match = /^\/(\S*)$/.exec(field.value);
    known = match ? names.filter((item) => item[0].startsWith(match[1])) : [];
    chosen = 0;
    commands.replaceChildren(...known.map(([name, text], index) => {
      const item = document.createElement("li");
      item.setAttribute("aria-selected", index === chosen);
      const button = document.createElement("button");
      button.type = "button";
      const strong = document.createElement("strong");
      strong.textContent = `/${name}`;
      const note = document.createElement("span");
      note.className = "soft";
      note.textContent = text;
      button.append(strong, note);
      button.addEventListener("click", () => complete(name));
      item.append(button);
      return item;
    }));
    commands.hidden = !known.length;
  };
  const names = [...document.querySelectorAll("#command-list option")].map((item) => [item.value, item.label]);
  field.addEventListener("input", show);
  field.addEventListener("keydown", (event) => {
    if (!commands.hidden && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      chosen = (chosen + (event.key === "ArrowDown" ? 1 : -1) + known.length) % known.length;
      [...commands.children].forEach((item, index) => item.setAttribute("aria-selected", index === chosen));
      event.preventDefault();
    } else if (!commands.hidden && event.key === "Tab" && known.length) {
      complete(known[chosen][0]);
      event.preventDefault();
    } else if (event.key === "Escape") {
      hide();
    } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      if (field.value.trim() || files.length) compose.requestSubmit();
    }
  });
  toEnd();
  field.focus({ preventScroll: true });
})();
