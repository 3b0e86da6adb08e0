/* The chat for guests of other sites. The token stands after # and is sent to this server only, as a header. */
(() => {
  "use strict";
  const log = document.getElementById("log");
  if (!log) return;
  const form = document.getElementById("compose");
  const field = document.getElementById("say");
  const state = document.getElementById("state");
  const token = decodeURIComponent(location.hash.slice(1));
  const CHAT = "site";
  const MAX_KEPT = 50;
  // A line is the side, the text and the id; one that is still being sent has a mark after them.
  const STORAGE_KEY = "tertulia";
  const parse = (text) => {
    try { return JSON.parse(text) ?? {}; } catch { return {}; }
  };
  const stored = () => {
    try { return parse(localStorage.getItem(STORAGE_KEY)); } catch { return {}; }
  };
  const memory = stored();
  memory.lines ??= [];
  const shownIds = new Set(memory.lines.map((line) => line[2]));
  const isNew = (id) => !shownIds.has(id) && !!shownIds.add(id);

  const show = (side, text) => {
    const item = document.createElement("li");
    item.className = `entry ${side}`;
    const words = document.createElement("p");
    words.className = "plain";
    words.dir = "auto";
    words.textContent = text;
    item.append(words);
    log.append(item);
    document.getElementById("hello").hidden = true;
    item.scrollIntoView({ block: "end" });
    return words;
  };
  for (const [side, text] of memory.lines) show(side, text);

  // Tabs of one browser share what is kept: what another one has written is not written over.
  const mergeLines = (other) => {
    if (other.visitor !== memory.visitor) return false;
    const lines = (other.lines ?? []).filter((line) => line.length === 3 && isNew(line[2]));
    for (const [side, text] of lines) show(side, text);
    memory.lines.push(...lines);
    return lines.length > 0;
  };
  const keep = () => {
    mergeLines(stored());
    memory.lines = memory.lines.slice(-MAX_KEPT);
    try { localStorage.setItem(STORAGE_KEY, JSON.stringify(memory)); } catch { /* nothing is kept then */ }
  };
  let reading = null;
  // Tabs that were opened at once have an id each: in a tab where nothing was said, the stored one counts.
  const adoptVisitor = ({ visitor }) => {
    if (!visitor || visitor === memory.visitor || memory.lines.length) return;
    memory.visitor = visitor;
    reading?.abort();
  };
  // The event has what was written; what is stored may be of this tab again.
  addEventListener("storage", (event) => {
    if (event.key !== STORAGE_KEY) return;
    adoptVisitor(stored());
    if (mergeLines(parse(event.newValue))) keep();
  });

  const ask = (path, options = {}) => fetch(`/web${path}`, {
    ...options,
    headers: {
      Authorization: `Bearer ${token}`,
      ...(memory.visitor ? { "X-Visitor-Id": memory.visitor } : {}),
      ...(options.headers ?? {}),
    },
  });
  const isClosed = (status) => status === 401 || status === 403;
  const refused = (status, text) => { state.textContent = isClosed(status) ? "This chat is closed." : text; };
  const lost = (status) => refused(status, "Not connected; trying again.");
  // Tabs of one browser are one visitor, whichever of them was first.
  const makeVisitor = async () => {
    memory.visitor ??= stored().visitor;
    if (memory.visitor) return 200;
    const response = await ask("/visitors", { method: "POST" });
    if (!response.ok) return response.status;
    const { visitor } = await response.json();
    memory.visitor = stored().visitor ?? visitor;
    keep();
    return 200;
  };
  let entering = null;
  const enter = () => entering ??= makeVisitor().finally(() => { entering = null; });
  // Another installation has made the id: this one gives a new one.
  const forgetVisitor = async (used, response) => {
    if (response.status !== 400) return false;
    const body = await response.json().catch(() => null);
    if (body?.error?.param !== "X-Visitor-Id") return false;
    if (used !== memory.visitor) return true; // a request that was on its way with the old one
    const { visitor } = stored();
    memory.visitor = visitor === memory.visitor ? undefined : visitor; // another tab has a new one
    delete memory.last;
    keep();
    return true;
  };

  let draft = null;
  const dropDraft = () => {
    draft?.parentElement.remove();
    draft = null;
  };
  const handle = (name, id, data) => {
    if (name === "delta") {
      draft ??= show("agent", "");
      draft.textContent += data.text ?? "";
    } else if (name === "message") {
      dropDraft();
      if (isNew(id)) {
        show("agent", data.text ?? "");
        memory.lines.push(["agent", data.text ?? "", id]);
      }
      memory.last = id;
      keep();
    }
  };
  const read = async () => {
    // 0: nothing was received yet. An answer that was on its way when the page was left comes again.
    const headers = { "Last-Event-ID": memory.last ?? "0" };
    reading = new AbortController();
    const used = memory.visitor;
    const response = await ask(`/${CHAT}/events`, { headers, signal: reading.signal });
    if (!response.ok) { await forgetVisitor(used, response); return response.status; }
    state.textContent = "";
    dropDraft(); // a piece of it may be missing
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let buffer = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return 200;
      buffer += value;
      const blocks = buffer.split("\n\n");
      buffer = blocks.pop();
      for (const block of blocks) {
        const fields = {};
        for (const line of block.split("\n")) {
          const index = line.indexOf(": ");
          if (index > 0) fields[line.slice(0, index)] = line.slice(index + 2);
        }
        if (fields.data) handle(fields.event, fields.id, JSON.parse(fields.data));
      }
    }
  };
  const follow = async () => {
    for (let pause = 500; ; pause = Math.min(pause * 2, 30000)) {
      let status = 0;
      try {
        status = await enter();
        if (status === 200) status = await read();
      } catch { /* there is no connection */ }
      if (status !== 200) lost(status);
      if (isClosed(status)) return;
      if (status === 200) pause = 500;
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  };

  const post = async (text, id) => {
    for (let isRepeated = false; ; isRepeated = true) {
      const status = await enter();
      if (status !== 200) return status;
      const used = memory.visitor;
      const response = await ask(`/${CHAT}/messages`, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ text, message_id: id }),
      });
      if (response.ok) return 200;
      if (!await forgetVisitor(used, response) || isRepeated) return response.status;
    }
  };
  // A message that may have arrived is sent again with its id, so that it is stored once.
  let unsent = null;
  let sending = Promise.resolve();
  const send = () => {
    const text = field.value.trim();
    if (!text) return;
    const id = unsent?.text === text ? unsent.id : crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;
    unsent = null;
    // What is written while a message is on its way is the next one.
    field.value = "";
    mergeLines(stored()); // it was said before
    // The answer may be here before the request has ended, so the message is shown when it is sent.
    const shown = show("person", text).parentElement;
    const line = ["person", text, id, "sending"];
    shownIds.add(id);
    memory.lines.push(line);
    keep();
    sending = sending.then(async () => {
      let status = 0;
      try { status = await post(text, id); } catch { /* there is no connection */ }
      if (status === 200) {
        line.length = 3;
        state.textContent = "";
      } else {
        shown.remove();
        memory.lines = memory.lines.filter((other) => other !== line);
        unsent = { id, text };
        field.value = [text, field.value].filter(Boolean).join("\n");
        refused(status, "The message was not sent; try again.");
      }
      keep();
    });
  };
  form.addEventListener("submit", (event) => { event.preventDefault(); send(); });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
  });
  follow();
})();
