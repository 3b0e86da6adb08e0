/* The script of the chat; console.js stands before it. */
(() => {
  "use strict";
  const { $, live, lost, ended, notify, rememberScroll, restoreScroll, toEnd } = window.consolePage;
  const root = $("#chat");
  if (!root) return;
  const draft = $("#draft");
  const compose = $("#compose");
  const field = $("#say");
  const commands = $("#commands");
  let known = [];
  let chosen = 0;
  const newId = () => crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;

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

  // Messages that were sent and are not in the transcript yet.
  let pending = [];
  const entryKey = (entry) => `${entry.parentElement.dataset.session} ${entry.id}`;
  const shownEntries = () => [...root.querySelectorAll("#live_chat .entry:is(.person, .note)")];
  const onOneLine = (text) => text.replace(/\s+/g, " ").trim();
  const isIn = (message, entry) => {
    if (entry.matches(".note")) return message.isCommand; // its reply
    const said = onOneLine($(".words", entry)?.textContent ?? "");
    const text = onOneLine(message.text);
    // An entry may be several messages that were answered together, or the beginning of a long one.
    return said.includes(text) || (said !== "" && text.startsWith(said));
  };
  const drop = (message) => {
    message.item.remove();
    pending = pending.filter((other) => other !== message);
  };
  const dropShown = () => {
    const entries = shownEntries();
    for (const message of pending) {
      const isShown = entries.some((entry) => !message.before.has(entryKey(entry)) && isIn(message, entry));
      if (isShown || message.isAnswered) drop(message);
    }
    draft.querySelectorAll(".done").forEach((item) => item.remove());
  };

  // Events only say that something happened; what was said comes from the store. One request at a time:
  // htmx reports a request that has to wait for another one as done before it began.
  let loading = null;
  let isOld = false;
  const reads = root.dataset.reads === "yes";
  const load = async () => {
    isOld = false;
    rememberScroll();
    try {
      await htmx.ajax("GET", "/console/chat?part=chat", { source: root, target: "#live_chat", swap: "innerMorph" });
      dropShown();
      restoreScroll();
    } finally {
      loading = null;
      if (isOld) refresh();
    }
  };
  const refresh = () => {
    if (!reads) return;
    isOld = true;
    loading ??= setTimeout(load, 60);
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

  // A tab in the background lets its stream go: a browser has six connections for a host.
  let source = null;
  const handlers = {};
  const on = (name, handle) => {
    handlers[name] = (event) => handle(event.data ? JSON.parse(event.data) : {});
  };
  const connect = () => {
    source = new EventSource(root.dataset.events);
    source.addEventListener("open", () => { live(); endAnswer(); refresh(); });
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
  // The answer that is being written; a piece that was missed makes it useless.
  let current = null;
  const endAnswer = () => {
    current?.item.classList.replace("dots", "done");
    current = null;
  };
  // Replies to commands, questions, failures and news are no answers: their keys begin with their kind.
  // The page gets them with the transcript, if it has one.
  const isNote = (delivery) => delivery.includes(":") && !delivery.startsWith("schedule:");
  on("began", () => {
    endAnswer();
    for (const message of pending) message.hasBegun = message.isStored;
    refresh();
  });
  on("delta", (data) => {
    if (!current) {
      current = bubble("agent", "Agent", "");
      current.item.classList.add("dots");
      draft.append(current.item);
    }
    current.paragraph.textContent += data.text ?? "";
    toEnd();
  });
  on("ended", () => {
    if (reads) endAnswer();
    for (const message of pending) message.isAnswered = message.hasBegun;
    refresh();
  });
  on("message", (data) => {
    const isOwn = isNote(data.delivery);
    if (!isOwn || data.delivery.startsWith("failure:")) endAnswer();
    if (!reads) {
      draft.querySelectorAll(".done").forEach((item) => item.remove());
      draft.append(bubble(isOwn ? "note" : "agent", isOwn ? "Tertulia" : "Agent", data.text ?? "").item);
    }
    refresh();
    toEnd();
  });

  connect();

  const dropCommands = () => pending.filter((message) => message.isCommand).forEach(drop);
  // The answer may be here before the request has ended, so the message is shown when it is sent.
  const showSent = (text, sentFiles) => {
    dropCommands();
    const names = sentFiles.map((file) => file.name).join(", ");
    const { item } = bubble("person", "You", [text, names].filter(Boolean).join("\n"));
    const before = new Set(shownEntries().map(entryKey));
    const message = { text, files: sentFiles, item, before, isCommand: text.startsWith("/") };
    if (reads) pending.push(message);
    draft.append(item);
    toEnd();
    return message;
  };
  // A message that may have arrived is sent again with its id, so that it is stored once.
  let unsent = null;
  const isSame = (one, other) => one?.text === other.text && JSON.stringify(one.files) === JSON.stringify(other.files);
  // What is written while a message is on its way is the next one.
  compose.addEventListener("htmx:config:request", (event) => {
    const { ctx } = event.detail;
    const message = showSent(field.value, files);
    message.id = isSame(unsent, message) ? unsent.id : newId();
    unsent = null;
    ctx.request.body.set("message_id", message.id);
    ctx.message = message;
    field.value = "";
    setFiles([]);
    hide();
  });
  const takeBack = (message) => {
    drop(message);
    unsent = message;
    field.value = [message.text, field.value].filter(Boolean).join("\n");
    setFiles([...message.files, ...files]);
  };
  // The things to try and the buttons come and go with the transcript.
  root.addEventListener("htmx:config:request", (event) => {
    const { ctx } = event.detail;
    if (event.target.closest("#turn-acts")) dropCommands();
    if (event.target.closest("#tries")) ctx.message = showSent(event.target.elements.text.value, []);
  });
  root.addEventListener("htmx:after:request", (event) => {
    const { message, response } = event.detail.ctx;
    if (message) message.isStored = !!response?.raw?.ok;
  });
  root.addEventListener("htmx:finally:request", (event) => {
    const { message } = event.detail.ctx;
    if (message && !message.isStored) {
      if (event.target === compose) takeBack(message);
      else drop(message);
    }
    // What came with the response may be older than what was loaded meanwhile.
    if (message?.isStored) refresh();
  });
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
