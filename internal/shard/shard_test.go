package shard_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"btrlab/internal/shard"
)

type asked struct {
	Seed   uint64 `json:"seed"`
	Policy string `json:"policy"`
}

// value is the outcome of an item: of its number and of what was asked, and nothing else.
func value(seed uint64, n int) string {
	return fmt.Sprintf("<%d & %d>", n, rand.New(rand.NewPCG(seed, uint64(n))).Uint64())
}

func work(t testing.TB, seed uint64, items int) shard.Work {
	t.Helper()
	w, err := shard.New("test", "v1", asked{seed, "<locked>"}, items)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func doing(seed uint64, jobs int) shard.Doing {
	return shard.Doing{Jobs: jobs, Item: func(n int) (any, error) { return value(seed, n), nil }}
}

func read(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The shards of any work are the whole: every item is in one of them, with the outcome that it has
// without shards, and a shard is a JSON document of its own.
func TestUnion(t *testing.T) {
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(1, 2)) // one seed, so that a failure is found again
	for round := range 60 {
		seed, items, of := rng.Uint64(), rng.IntN(40), 1+rng.IntN(12)
		var names []string
		for n := range of {
			name := filepath.Join(dir, fmt.Sprintf("%d-%d.json", round, n))
			done, err := shard.Do(name, work(t, seed, items), shard.Part{N: n, Of: of}, doing(seed, 1+rng.IntN(4)))
			if err != nil || !done.Whole || done.Had != 0 || done.Items != done.All {
				t.Fatalf("%d of %d, %d items: %+v, %v", n, of, items, done, err)
			}
			if !json.Valid(read(t, name)) {
				t.Errorf("%s is no JSON", read(t, name))
			}
			names = append(names, name)
		}
		rng.Shuffle(of, func(i, j int) { names[i], names[j] = names[j], names[i] })
		s, err := shard.Join(names)
		if err != nil || len(s.Results) != items || s.Incomplete() != "" {
			t.Fatalf("%d shards of %d items: %+v, %v", of, items, s, err)
		}
		values, err := shard.Values[string](s)
		for n, v := range values {
			if err != nil || s.Results[n].Item != n || v != value(seed, n) {
				t.Errorf("item %d is %d, %s, %v", n, s.Results[n].Item, v, err)
			}
		}
	}
}

// A process may end anywhere, in the middle of a line as well. Whatever of the file is there, the
// shard goes on and its file becomes the same, and no item is done again whose line is whole.
func TestResumesAnywhere(t *testing.T) {
	const seed, items = 7, 23
	name, p := filepath.Join(t.TempDir(), "part.json"), shard.Part{N: 2, Of: 4}
	if _, err := shard.Do(name, work(t, seed, items), p, doing(seed, 1)); err != nil {
		t.Fatal(err)
	}
	whole := read(t, name)
	for size := range len(whole) + 1 {
		if err := os.WriteFile(name, whole[:size], 0o644); err != nil {
			t.Fatal(err)
		}
		had := max(0, bytes.Count(whole[:size], []byte("\n"))-1)
		had = min(had, 6)
		var did atomic.Int32
		d := doing(seed, 1+size%3)
		item := d.Item
		d.Item = func(n int) (any, error) { did.Add(1); return item(n) }
		done, err := shard.Do(name, work(t, seed, items), p, d)
		if err != nil || !done.Whole || done.Had != had || int(did.Load()) != 6-had {
			t.Fatalf("%d bytes: %+v, %d done, %v", size, done, did.Load(), err)
		}
		if have := read(t, name); !bytes.Equal(have, whole) {
			t.Fatalf("%d bytes: have %s want %s", size, have, whole)
		}
	}
}

// A shard that is stopped, or one of whose items fails, keeps all items before it, however many
// tasks there are.
func TestStops(t *testing.T) {
	const seed, items = 3, 30
	broken := errors.New("broken")
	for jobs := 1; jobs <= 4; jobs++ {
		for at := range items {
			for _, how := range []error{shard.ErrStopped, broken, nil} {
				name, p := filepath.Join(t.TempDir(), "part.json"), shard.Part{Of: 1}
				d := doing(seed, jobs)
				var begun atomic.Int32
				item := d.Item
				d.Item = func(n int) (any, error) {
					if begun.Add(1); n == at && how != nil {
						return nil, how
					}
					return item(n)
				}
				if how == nil {
					d.Stop = func() bool { return int(begun.Load()) >= at }
				}
				done, err := shard.Do(name, work(t, seed, items), p, d)
				if how == broken != (err != nil) || done.Whole || how != nil && done.Items != at {
					t.Fatalf("%d jobs, %v at %d: %+v, %v", jobs, how, at, done, err)
				}
				again, err := shard.Do(name, work(t, seed, items), p, doing(seed, jobs))
				if err != nil || !again.Whole || again.Had != done.Items {
					t.Fatalf("%d jobs, %v at %d: %+v, %v", jobs, how, at, again, err)
				}
			}
		}
	}
}

// No byte of a file can be another one: who joins it is told.
func TestEdited(t *testing.T) {
	const seed = 5
	dir := t.TempDir()
	name, other := filepath.Join(dir, "part-0.json"), filepath.Join(dir, "part-1.json")
	for n, name := range []string{name, other} {
		if _, err := shard.Do(name, work(t, seed, 9), shard.Part{N: n, Of: 2}, doing(seed, 1)); err != nil {
			t.Fatal(err)
		}
	}
	whole := read(t, name)
	var bad *shard.FileError
	for i := range whole {
		for _, flip := range []byte{1, 0x20} {
			b := slices.Clone(whole)
			b[i] ^= flip
			if err := os.WriteFile(name, b, 0o644); err != nil {
				t.Fatal(err)
			}
			if _, err := shard.Join([]string{other, name}); !errors.As(err, &bad) || strings.Contains(err.Error(), "\n") {
				t.Fatalf("byte %d: %v", i, err)
			}
		}
		if err := os.WriteFile(name, whole[:i], 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := shard.Join([]string{other, name}); !errors.As(err, &bad) {
			t.Fatalf("%d bytes: %v", i, err)
		}
	}
}

// Files that do not belong together are refused, and so is a file in whose place another one is to
// be written; the error names what differs.
func TestBelong(t *testing.T) {
	dir := t.TempDir()
	put := func(name string, w shard.Work, p shard.Part) string {
		t.Helper()
		name = filepath.Join(dir, name)
		if _, err := shard.Do(name, w, p, doing(1, 1)); err != nil {
			t.Fatal(err)
		}
		return name
	}
	w := work(t, 1, 6)
	kind, version := w, w
	kind.Kind, version.Version = "other", "v2"
	first := put("a", w, shard.Part{N: 0, Of: 3})
	third := put("c", w, shard.Part{N: 2, Of: 3})
	format := strings.Replace(string(read(t, third)), `{"btrlab_shard":1`, `{"btrlab_shard":9`, 1)
	if err := os.WriteFile(filepath.Join(dir, "format"), []byte(format), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "text"), []byte("{\n}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for want, name := range map[string]string{
		"bad command, have other want test":   put("kind", kind, shard.Part{N: 1, Of: 3}),
		"bad version, have v2 want v1":        put("version", version, shard.Part{N: 1, Of: 3}),
		"bad seed, have 2 want 1":             put("seed", work(t, 2, 6), shard.Part{N: 1, Of: 3}),
		"bad number of items, have 7 want 6":  put("items", work(t, 1, 7), shard.Part{N: 1, Of: 3}),
		"bad number of shards, have 4 want 3": put("of", w, shard.Part{N: 1, Of: 4}),
		"shard 2 is there twice":              third,
		"bad format, have 9 want 1":           filepath.Join(dir, "format"),
		"no file of a shard":                  filepath.Join(dir, "text"),
	} {
		_, err := shard.Join([]string{first, third, name})
		if err == nil || !strings.HasPrefix(err.Error(), name+": ") || !strings.Contains(err.Error(), want) {
			t.Errorf("have %v want %s", err, want)
		}
	}
	for want, p := range map[string]shard.Part{"bad shard, have 0/3 want 1/3": {N: 1, Of: 3}, "bad seed": {N: 0, Of: 3}} {
		seed := uint64(1)
		if want == "bad seed" {
			seed = 2
		}
		before := read(t, first)
		if _, err := shard.Do(first, work(t, seed, 6), p, doing(1, 1)); err == nil || !strings.Contains(err.Error(), want) || !bytes.Equal(before, read(t, first)) {
			t.Errorf("have %v want %s", err, want)
		}
	}
	s, err := shard.Join([]string{third, first})
	if err != nil || s.Incomplete() != "missing: shard 1 of 3" || len(s.Results) != 4 {
		t.Errorf("%+v, %v", s, err)
	}
	far := put("far", w, shard.Part{N: 4, Of: 12})
	if s, err := shard.Join([]string{far}); err != nil || s.Incomplete() != "missing: shards 0-3, 5-11 of 12" {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestParse(t *testing.T) {
	if p, err := shard.Parse("3/16"); err != nil || p != (shard.Part{N: 3, Of: 16}) {
		t.Errorf("%v, %v", p, err)
	}
	for _, bad := range []string{"", "3", "3/", "/3", "3/3", "-1/3", "+1/3", "1/3/4", "01/3", "1/ 3", "1/0", "0/0", "1/-3"} {
		if p, err := shard.Parse(bad); err == nil {
			t.Errorf("%q is %v", bad, p)
		}
	}
}

// What is no file is said at once: a device that has no end is not read.
func TestNoFile(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"/dev/zero", dir, dir + "/none"} {
		var bad *shard.FileError
		if _, err := shard.Join([]string{name}); !errors.As(err, &bad) || bad.Name != name {
			t.Errorf("join %s: %v, want an error of the file", name, err)
		}
	}
	w, err := shard.New("kind", "v", map[string]int{}, 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/dev/zero", "/dev/full", dir} {
		var bad *shard.FileError
		if _, err := shard.Do(name, w, shard.Part{N: 0, Of: 1}, shard.Doing{Jobs: 1}); !errors.As(err, &bad) || bad.Name != name {
			t.Errorf("do %s: %v, want an error of the file", name, err)
		}
	}
}
