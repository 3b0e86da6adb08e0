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
  let memory = {};
  try { memory = JSON.parse(localStorage.getItem("tertulia") ?? "{}"); } catch { memory = {}; }
  memory.lines ??= [];
  const keep = () => {
    memory.lines = memory.lines.slice(-MAX_KEPT);
    try { localStorage.setItem("tertulia", JSON.stringify(memory)); } catch { /* nothing is kept then */ }
  };

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

  const ask = (path, options = {}) => fetch(`/web${path}`, {
    ...options,
    headers: {
      Authorization: `Bearer ${token}`,
      ...(memory.visitor ? { "X-Visitor-Id": memory.visitor } : {}),
      ...(options.headers ?? {}),
    },
  });
  const refused = (status) => {
    state.textContent = status === 401 || status === 403
      ? "This chat is closed." : "Not connected; trying again.";
  };
  const enter = async () => {
    if (memory.visitor) return true;
    const response = await ask("/visitors", { method: "POST" });
    if (!response.ok) { refused(response.status); return false; }
    memory.visitor = (await response.json()).visitor;
    keep();
    return true;
  };

  let draft = null;
  const handle = (name, id, data) => {
    if (name === "delta") {
      draft ??= show("agent", "");
      draft.textContent += data.text ?? "";
    } else if (name === "message") {
      draft?.parentElement.remove();
      draft = null;
      show("agent", data.text ?? "");
      memory.lines.push(["agent", data.text ?? ""]);
      memory.last = id;
      keep();
    }
  };
  const read = async () => {
    // 0: nothing was received yet. An answer that was on its way when the page was left comes again.
    const headers = { "Last-Event-ID": memory.last ?? "0" };
    const response = await ask(`/${CHAT}/events`, { headers });
    if (response.status === 400) { delete memory.visitor; keep(); }
    if (!response.ok) { refused(response.status); return response.status; }
    state.textContent = "";
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
      try { if (await enter()) { status = await read(); } else status = 401; } catch { refused(0); }
      if (status === 401 || status === 403) return;
      if (status === 200) pause = 500;
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  };

  // A message that may have arrived is sent again with its id, so that it is stored once.
  let unsent = null;
  const send = async () => {
    const text = field.value.trim();
    if (!text || !memory.visitor) return;
    const id = unsent?.text === text ? unsent.id : crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;
    unsent = { id, text };
    // The answer may be here before the request has ended, so the message is shown when it is sent.
    const shown = show("person", text).parentElement;
    const line = ["person", text];
    memory.lines.push(line);
    keep();
    const takeBack = (status) => {
      shown.remove();
      memory.lines = memory.lines.filter((other) => other !== line);
      keep();
      refused(status);
    };
    try {
      const response = await ask(`/${CHAT}/messages`, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ text, message_id: id }),
      });
      if (!response.ok) { takeBack(response.status); return; }
      field.value = "";
      unsent = null;
    } catch { takeBack(0); }
  };
  form.addEventListener("submit", (event) => { event.preventDefault(); send(); });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
  });
  follow();
})();
