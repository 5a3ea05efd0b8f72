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
// The program comes in pieces, each a message. They are unpacked and compiled as they come.
let feed, pieces = 0, unpacked = 0;
const packed = new ReadableStream({ start(to) { feed = to; } });
onmessage = e => {
  const m = e.data;
  if (m.what !== undefined) { btrlabAsk(m.id, m.what, m.args); return; }
  if (m.catalog !== undefined) {
    new Response(new Blob([bytesOf(m.catalog)]).stream().pipeThrough(new DecompressionStream("gzip"))).text().then(catalog => postMessage({ catalog }), err => postMessage({ failed: String(err) }));
    return;
  }
  feed.enqueue(bytesOf(m.piece));
  if (++pieces === m.of) feed.close();
};
(async () => {
  try {
    const told = new TransformStream({
      transform(bytes, to) { postMessage({ unpacked: unpacked += bytes.length }); to.enqueue(bytes); },
      flush() { postMessage({ stage: "compile" }); },
    });
    const plain = packed.pipeThrough(new DecompressionStream("gzip")).pipeThrough(told);
    const go = new Go();
    const made = await WebAssembly.instantiateStreaming(new Response(plain, { headers: { "Content-Type": "application/wasm" } }), go.importObject);
    postMessage({ stage: "start" });
    go.run(made.instance).then(() => postMessage({ failed: "the program has ended" }));
  } catch (err) {
    postMessage({ failed: String(err) });
  }
})();
