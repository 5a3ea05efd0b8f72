package pages_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"btrlab/internal/site"
	"btrlab/internal/study/levels"
)

// The warm-up is played before the program is there: a server keeps the program back until a move
// and the word never are answered. A page that needs the program says that it waits, and for what;
// nothing of it can be used, and a key is answered. Explore, Museum and Policies need the catalog
// only, which comes first: a search that is asked for begins once the program is there.
func TestFirstMoveBeforeProgram(t *testing.T) {
	b := browse(t)
	dir := built(t)
	// Closed when the program may come, and the catalog.
	here, listed := make(chan struct{}), make(chan struct{})
	files := http.FileServer(http.Dir(dir))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/catalog.js":
			<-listed
		case filepath.Ext(r.URL.Path) == ".js":
			<-here
		}
		files.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	release := sync.OnceFunc(func() { close(here) })
	list := sync.OnceFunc(func() { close(listed) })
	t.Cleanup(release) // before the server waits for its answers
	t.Cleanup(list)
	b.base = server.URL + "/"
	b.show(1200, 900, "light")
	b.call("Page.navigate", map[string]any{"url": b.base + "index.html"}, nil)
	b.until("document.querySelector('#levels-rule').textContent === 'x is 2 at the end'")
	b.press("0", "1", "f")
	b.until("document.querySelector('#step-verdict .verdict')")
	if text := b.text("#step-verdict"); !strings.Contains(text, "Won") || !strings.Contains(text, "Next level") {
		t.Errorf("level 1 is not won: %s", text)
	}
	b.shot("first")
	b.press("b", "x")
	b.until("document.querySelector('#levels-said .verdict')")
	if text := b.text("#levels-said"); !strings.Contains(text, "it can be broken") {
		t.Errorf("never says %q", text)
	}
	if text := b.text("#status"); text != "Loading the program: 1 of 4, download" {
		t.Errorf("the status is %q", text)
	}
	b.eval("location.hash = '#step'", nil)
	b.until("!document.querySelector('#waiting').hidden")
	var used bool
	b.eval("[...document.querySelectorAll('#page-step select, #page-step button')].some(e => !e.closest('[inert]'))", &used)
	if used {
		t.Error("something of the page can be used that does nothing")
	}
	b.press("0")
	b.until("document.querySelector('#waiting-key').textContent.includes('The key 0 was not heard')")
	b.shot("waiting")
	b.eval("location.hash = '#museum?exhibit=8'", nil)
	b.until("!document.querySelector('#waiting').hidden")
	list()
	b.until("document.querySelector('#waiting').hidden && document.querySelector('#museum-exhibit h3').textContent.startsWith('8. ')")
	b.eval("location.hash = '#policies?policy=prewait'", nil)
	b.until("document.querySelector('#policies-promise').textContent && document.querySelectorAll('#policies-toggles .toggle').length > 20")
	b.eval("location.hash = '#explore?scenario=two-writers-same'", nil)
	b.until("document.querySelector('#explore-scenario').textContent === 'two-writers-same' && !document.querySelector('#page-explore [inert]')")
	b.eval("document.querySelector('#explore-go').click()", nil)
	b.until("document.querySelector('#explore-note').textContent.includes('still loading')")
	b.shot("listed")
	b.eval("location.hash = '#step'", nil)
	b.until("!document.querySelector('#waiting').hidden")
	var ready bool
	b.eval("document.documentElement.dataset.ready !== undefined", &ready)
	if ready {
		t.Fatal("the program is there already: the test has shown nothing")
	}
	release()
	b.until("document.documentElement.dataset.ready")
	b.until("document.querySelector('#waiting').hidden && document.querySelectorAll('#page-step .task').length === 2")
	b.press("0")
	b.until("document.querySelector('#step-did li')")
	b.until("document.querySelector('#explore-found .verdict').textContent.includes('two-writers-same')")
	if len(b.errors) > 0 {
		t.Errorf("errors on the page:\n%s", strings.Join(b.errors, "\n"))
	}
}

// walk.js says what a Desk says, on moves that nobody chose: of each level, all that a page shows.
func TestWalkInChromium(t *testing.T) {
	b := browse(t)
	b.base = "file://" + built(t) + "/"
	b.open("#measured")
	r := rand.New(rand.NewPCG(3, 4))
	for i, l := range levels.All {
		var d site.Desk
		place := site.Place{Level: l.Name}
		want := []site.View{desk[site.View](t, &d, "open", place)}
		var moves []site.Move
		for len(moves) < 150 {
			m := site.Move{Do: []string{"step", "step", "step", "step", "run", "undo", "undo", "next", "next", "finish", "begin"}[r.IntN(11)]}
			if (m.Do == "finish" || m.Do == "begin") && r.IntN(4) > 0 {
				continue
			}
			if m.Do == "step" || m.Do == "run" {
				m.Task = r.IntN(len(l.Tasks) + 1) // one is not there
				if m.Task == len(l.Tasks) && r.IntN(4) > 0 {
					m.Task = 0
				}
			}
			moves = append(moves, m)
			want = append(want, desk[site.View](t, &d, "move", m))
		}
		// and the address of each of these places opens it
		for _, v := range want[:len(moves)+1] {
			want = append(want, desk[site.View](t, &d, "open", v.Place))
		}
		asked, err := json.Marshal(moves)
		must(t, err)
		var have []site.View
		b.eval(fmt.Sprintf(`(() => {
			const g = JSON.parse(document.getElementById("levels-data").textContent)[%d], w = walk(g), views = [w.open("", 0)];
			for (const m of %s) views.push(w.move(m));
			for (const v of views.slice()) views.push(walk(g).open(v.schedule, v.at));
			return views;
		})()`, i, asked), &have)
		if len(have) != len(want) {
			t.Fatalf("%s: have %d views want %d", l.Name, len(have), len(want))
		}
		for i := range want {
			// A Desk does not know the next step of a task that waits for ever at the end of the
			// steps that were taken back.
			for t := range have[i].Tasks {
				if w := &want[i].Tasks[t]; (w.Can || w.Waits) && w.Next == "" {
					w.Next = have[i].Tasks[t].Next
				}
			}
			if !reflect.DeepEqual(have[i], want[i]) {
				t.Fatalf("%s, view %d after %+v:\nhave %+v\nwant %+v", l.Name, i, moves[max(0, min(i, len(moves))-3):min(i, len(moves))], have[i], want[i])
			}
		}
	}
	for _, bad := range []string{"often", "2", "99:1", "3:7"} {
		var says string
		b.eval(fmt.Sprintf(`(() => { try { walk(JSON.parse(document.getElementById("levels-data").textContent)[0]).open(%q, 0); return ""; } catch (err) { return err.message; } })()`, bad), &says)
		if !strings.Contains(says, bad+" is no schedule of it") {
			t.Errorf("the schedule %q: %q", bad, says)
		}
	}
}

// desk asks a Desk as the page does, in JSON.
func desk[R any](t *testing.T, d *site.Desk, what string, args any) (r R) {
	t.Helper()
	in, err := json.Marshal(args)
	must(t, err)
	out, err := d.Ask(what, in)
	must(t, err)
	must(t, json.Unmarshal(out, &r))
	return r
}
