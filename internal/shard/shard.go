// Package shard cuts long work into shards, which machines do without knowing of each other, and
// joins what they have found.
//
//	Part   which shard of how many: 3/16                            shard.go
//	Work   what is cut: what was asked, and how many items it has   shard.go
//	Do     does the items of a shard, into its file                 do.go
//	Join   reads the files of all shards                            join.go
//	lines  how a file is written and verified                       file.go
//
// Work is a list of items that are done one by one: searches, workloads, faults, submissions. Item
// n is of shard n modulo the number of shards. A package that has long work says what an item does;
// it must depend on the item's number and on what was asked, and on nothing else.
//
// # The file
//
// A shard is a file of lines: a head with the work, a line for each item, an end. With its end it
// is a JSON document. Each line ends with a sum of itself and of all before it, so a file that was
// cut or edited is noticed. A file holds no times and no names of machines: the same shard has the
// same bytes wherever it is done, and however often it was stopped on the way.
//
// # Resuming
//
// Lines are appended one by one, in the order of the items. A process that ends in the middle, by
// whatever signal, leaves whole lines and perhaps a part of one. Do cuts that part off and goes on
// with the next item; a file that has its end is left as it is.
package shard

import (
	"encoding/json"
	"fmt"
	"iter"
	"strconv"
	"strings"
)

// Part is shard N of Of, counted from 0.
type Part struct{ N, Of int }

// Parse reads a part as it is written on a command line: 3/16.
func Parse(text string) (Part, error) {
	n, of, _ := strings.Cut(text, "/")
	var p Part
	var bad [2]error
	p.N, bad[0] = strconv.Atoi(n)
	p.Of, bad[1] = strconv.Atoi(of)
	if bad[0] != nil || bad[1] != nil || p.N < 0 || p.N >= p.Of || p.String() != text {
		return Part{}, fmt.Errorf("bad shard, have %q want I/N with 0 <= I < N, as 3/16", text)
	}
	return p, nil
}

func (p Part) String() string { return fmt.Sprintf("%d/%d", p.N, p.Of) }

// Items are the items of the part, of work that has so many.
func (p Part) Items(all int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := 0; p.item(i) < all && yield(p.item(i)); i++ {
		}
	}
}

// item is the number of the part's item i.
func (p Part) item(i int) int { return p.N + i*p.Of }

// count is how many items the part has, of work that has so many.
func (p Part) count(all int) int { return max(0, (all-p.N+p.Of-1)/p.Of) }

// Work is what is cut into shards. Files with different work do not belong together.
type Work struct {
	Kind    string          `json:"kind"`    // the command: crash
	Version string          `json:"version"` // of the program, which decides what an item is
	Asked   json.RawMessage `json:"asked"`   // an object: what the command was asked for
	Items   int             `json:"items"`
}

// New is work of a kind. Asked is a struct or a map; its fields are named where two differ.
func New(kind, version string, asked any, items int) (Work, error) {
	b, err := marshal(asked)
	return Work{kind, version, b, items}, err
}

// Differs says in what other is not w, or "".
func (w *Work) differs(other *Work) string {
	for _, f := range []struct {
		name       string
		have, want any
	}{{"command", other.Kind, w.Kind}, {"version", other.Version, w.Version}} {
		if f.have != f.want {
			return fmt.Sprintf("bad %s, have %v want %v", f.name, f.have, f.want)
		}
	}
	var have, want map[string]json.RawMessage
	if json.Unmarshal(other.Asked, &have) != nil || json.Unmarshal(w.Asked, &want) != nil {
		return "bad work, want an object"
	}
	for _, name := range sortedKeys(have, want) {
		if h, w := string(have[name]), string(want[name]); h != w {
			return fmt.Sprintf("bad %s, have %s want %s", name, orNone(h), orNone(w))
		}
	}
	if other.Items != w.Items {
		return fmt.Sprintf("bad number of items, have %d want %d", other.Items, w.Items)
	}
	return ""
}
