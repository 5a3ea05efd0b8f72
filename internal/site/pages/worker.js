// The worker: it starts the program and hands on the questions of the page. wasm_exec.js of Go stands before it.

// bytesOf reads what pages.go's text wrote.
function bytesOf(s) {
  const digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";
  const value = new Uint8Array(128);
  for (let i = 0; i < digits.length; i++) value[digits.charCodeAt(i)] = i;
  const bytes = new Uint8Array((s.length - 1) / 5 * 4), view = new DataView(bytes.buffer);
  for (let i = 1, o = 0; i < s.length; i += 5, o += 4) {
    let v = 0;
    for (let j = i; j < i + 5; j++) v = v * 85 + value[s.charCodeAt(j)];
    view.setUint32(o, v);
  }
  return bytes.subarray(0, bytes.length - value[s.charCodeAt(0)]);
}
onmessage = async e => {
  const m = e.data;
  if (m.what !== undefined) {
    btrlabAsk(m.id, m.what, m.args);
    return;
  }
  try {
    const bytes = bytesOf(m.wasm);
    const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const go = new Go();
    const made = await WebAssembly.instantiateStreaming(new Response(plain, { headers: { "Content-Type": "application/wasm" } }), go.importObject);
    go.run(made.instance).then(() => postMessage({ failed: "the program has ended" }));
  } catch (err) {
    postMessage({ failed: String(err) });
  }
};
