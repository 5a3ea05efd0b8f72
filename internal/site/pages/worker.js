// The worker: it starts the program and hands on the questions of the page. wasm_exec.js of Go stands before it.
onmessage = async e => {
  const m = e.data;
  if (m.what !== undefined) {
    btrlabAsk(m.id, m.what, m.args);
    return;
  }
  try {
    const bytes = Uint8Array.from(atob(m.wasm), c => c.charCodeAt(0));
    const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const go = new Go();
    const made = await WebAssembly.instantiateStreaming(new Response(plain, { headers: { "Content-Type": "application/wasm" } }), go.importObject);
    go.run(made.instance).then(() => postMessage({ failed: "the program has ended" }));
  } catch (err) {
    postMessage({ failed: String(err) });
  }
};
