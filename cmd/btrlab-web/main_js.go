// Command btrlab-web is the part of the site that runs in a web worker of the browser: the write
// path, the explorer and the timelines, compiled to WebAssembly. worker.js starts it and hands on
// the questions of the page.
package main

import (
	"sync"
	"sync/atomic"
	"syscall/js"
	"time"

	"btrlab/internal/site"
)

// idle is how long the page has to be silent until the searches are warmed up.
const idle = 200 * time.Millisecond

func main() {
	post := func(message map[string]any) { js.Global().Call("postMessage", message) }
	var (
		asking   sync.Mutex   // one question after the other, but for stop
		waiting  atomic.Int32 // questions without an answer
		answered atomic.Bool  // the page has had its first answer
	)
	running := 0 // number of the question that is answered
	desk := &site.Desk{
		// the browser delivers messages while all tasks of the program wait
		Yield: func() { time.Sleep(time.Millisecond) },
	}
	desk.Tell = func(p site.Progress) {
		post(map[string]any{"id": running, "text": p.Text, "share": p.Share})
	}
	js.Global().Set("btrlabAsk", js.FuncOf(func(_ js.Value, args []js.Value) any {
		id, what, with := args[0].Int(), args[1].String(), args[2].String()
		if what == "stop" {
			desk.Stop()
			return nil
		}
		waiting.Add(1)
		go func() {
			asking.Lock()
			defer asking.Unlock()
			running = id
			answer, err := desk.Ask(what, []byte(with))
			waiting.Add(-1)
			answered.Store(true)
			if err != nil {
				post(map[string]any{"id": id, "error": err.Error()})
				return
			}
			post(map[string]any{"id": id, "answer": string(answer)})
		}()
		return nil
	}))
	post(map[string]any{"ready": true})
	for warm := false; !warm; { // while the visitor reads
		time.Sleep(idle)
		if !answered.Load() || waiting.Load() > 0 {
			continue
		}
		asking.Lock()
		warm = desk.Warm(func() bool { return waiting.Load() > 0 })
		asking.Unlock()
	}
	select {}
}
