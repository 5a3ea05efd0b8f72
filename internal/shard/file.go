package shard

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// format is that of the files.
const format = 1

// head is the first line.
type head struct {
	Format int `json:"btrlab_shard"`
	Shard  int `json:"shard"`
	Shards int `json:"shards"`
	Work
}

// Result is the outcome of an item.
type Result struct {
	Item  int             `json:"item"`
	Value json.RawMessage `json:"value"`
}

// ending is the last line, without what closes the document.
type ending struct {
	Whole int `json:"whole"` // items
}

// A line is an object, before which stands what joins it to the line before and after which what
// opens or closes the document.
const (
	sumMark  = `,"sum":"`
	headEnd  = `,"results":[`
	sumLen   = 16
	itemJoin = ","
	endJoin  = `],"end":`
	closeDoc = "}"
)

// chain is the sum of all lines so far.
type chain struct{ sum string }

// line is the text of v with the sum, and moves the chain on.
func (c *chain) line(v any) (string, error) {
	b, err := marshal(v)
	if err != nil {
		return "", err
	}
	text := string(b[:len(b)-1])
	c.sum = c.next(text)
	return text + sumMark + c.sum + `"}`, nil
}

func (c *chain) next(text string) string {
	sum := sha256.Sum256([]byte(c.sum + "\n" + text))
	return hex.EncodeToString(sum[:])[:sumLen]
}

// read verifies a line and moves the chain on.
func (c *chain) read(text string, v any) bool {
	at := strings.LastIndex(text, sumMark)
	if at < 0 {
		return false
	}
	sum := c.next(text[:at])
	if text[at:] != sumMark+sum+`"}` || json.Unmarshal([]byte(text[:at]+"}"), v) != nil {
		return false
	}
	c.sum = sum
	return true
}

// file is what a shard's file holds.
type file struct {
	head
	part    Part
	results []Result
	whole   bool
	chain   chain
	size    int64 // of its whole lines
}

// errNoShard is about a file that is none.
var errNoShard = errors.New("no file of a shard, want what a command with --shard I/N --out FILE has written")

// parse reads the lines of a file. A last line that is not whole counts for nothing: the process
// ended there. Everything else that is not as it was written is an error.
func parse(r io.Reader) (*file, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	f := &file{}
	for n := 1; ; n++ {
		line, rest, ok := bytes.Cut(text, []byte("\n"))
		if !ok {
			if n == 1 && !strings.HasPrefix(`{"btrlab_shard"`, string(line[:min(len(line), len(`{"btrlab_shard"`))])) {
				return nil, errNoShard
			}
			return f, nil
		}
		if err := f.add(n, string(line)); err != nil {
			return nil, err
		}
		f.size += int64(len(line)) + 1
		text = rest
	}
}

// add reads line n.
func (f *file) add(n int, line string) error {
	bad := fmt.Errorf("bad line %d, which was changed after it was written; remove the file to do the shard anew", n)
	switch {
	case n == 1:
		return f.begin(line, bad)
	case f.whole:
		return bad
	case strings.HasPrefix(line, endJoin):
		var e ending
		line, ok := strings.CutSuffix(strings.TrimPrefix(line, endJoin), closeDoc)
		if !ok || !f.chain.read(line, &e) || e.Whole != len(f.results) || e.Whole != f.part.count(f.Items) {
			return bad
		}
		f.whole = true
		return nil
	}
	if len(f.results) > 0 {
		var ok bool
		if line, ok = strings.CutPrefix(line, itemJoin); !ok {
			return bad
		}
	}
	var r Result
	if !f.chain.read(line, &r) || r.Item != f.part.N+len(f.results)*f.part.Of || r.Item >= f.Items {
		return bad
	}
	f.results = append(f.results, r)
	return nil
}

func (f *file) begin(line string, bad error) error {
	var mark struct {
		Format *int `json:"btrlab_shard"`
	}
	line, ok := strings.CutSuffix(line, headEnd)
	if !ok || json.Unmarshal([]byte(line+closeDoc), &mark) != nil || mark.Format == nil {
		return errNoShard
	}
	if *mark.Format != format {
		return fmt.Errorf("bad format, have %d want %d: another version of btrlab has written it", *mark.Format, format)
	}
	if !f.chain.read(line+closeDoc, &f.head) || f.Shard < 0 || f.Shard >= f.Shards {
		return bad
	}
	f.part = Part{f.Shard, f.Shards}
	return nil
}

// first is the text of the first line.
func (c *chain) first(h head) (string, error) {
	text, err := c.line(h)
	return strings.TrimSuffix(text, closeDoc) + headEnd + "\n", err
}

// next item, after so many others.
func (c *chain) item(r Result, others int) (string, error) {
	text, err := c.line(r)
	if others > 0 {
		text = itemJoin + text
	}
	return text + "\n", err
}

// last is the text of the end.
func (c *chain) last(items int) (string, error) {
	text, err := c.line(ending{items})
	return endJoin + text + closeDoc + "\n", err
}

// sortedKeys are the keys of both.
func sortedKeys(a, b map[string]json.RawMessage) []string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return slices.Sorted(maps.Keys(all))
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

// marshal is the JSON of a value, on one line and without the escapes that are for HTML.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}
