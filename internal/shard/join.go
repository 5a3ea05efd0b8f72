package shard

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
)

// Set is the shards of one work.
type Set struct {
	Work
	Shards  int
	Missing []int    // shards that are not there
	Results []Result // of those that are, by item
}

// Join reads the files of shards. They must be whole and of the same work, and no shard may be
// there twice; the error is then a *FileError.
func Join(names []string) (*Set, error) {
	if len(names) == 0 {
		return nil, errors.New("no files of shards")
	}
	var first *file
	by := map[int]*file{}
	from := map[int]string{}
	for _, name := range names {
		x, err := open(name)
		if err != nil {
			return nil, err
		}
		if first == nil {
			first = x
		}
		bad := first.differs(&x.Work)
		if bad == "" && x.Shards != first.Shards {
			bad = fmt.Sprintf("bad number of shards, have %d want %d", x.Shards, first.Shards)
		}
		if bad != "" {
			return nil, &FileError{name, fmt.Errorf("%s, as %s has", bad, names[0])}
		}
		if by[x.Shard] != nil {
			return nil, &FileError{name, fmt.Errorf("shard %d is there twice: %s has it as well", x.Shard, from[x.Shard])}
		}
		by[x.Shard], from[x.Shard] = x, name
	}
	s := &Set{Work: first.Work, Shards: first.Shards}
	for n := range s.Shards {
		if by[n] == nil {
			s.Missing = append(s.Missing, n)
		}
	}
	for n := range s.Items {
		if x := by[n%s.Shards]; x != nil {
			s.Results = append(s.Results, x.results[n/s.Shards])
		}
	}
	return s, nil
}

// open reads a file that must be whole.
func open(name string) (*file, error) {
	st, err := os.Stat(name) // a pipe is as good as a file, a device may have no end
	if err == nil && st.Mode()&(os.ModeDevice|os.ModeDir) != 0 {
		err = errors.New("a device or a directory, want a file of a shard")
	}
	var f *os.File
	if err == nil {
		f, err = os.Open(name)
	}
	if path := (*os.PathError)(nil); errors.As(err, &path) {
		err = path.Err
	}
	if err != nil {
		return nil, &FileError{name, err}
	}
	defer f.Close()
	x, err := parse(f)
	switch {
	case err != nil:
		return nil, &FileError{name, err}
	case x.size == 0:
		return nil, &FileError{name, errors.New("truncated in its first line; the command that writes it begins anew")}
	case !x.whole:
		return nil, &FileError{name, fmt.Errorf("shard %s ends after %d of %d items; the command that wrote it goes on there", x.part, len(x.results), x.part.count(x.Items))}
	}
	return x, nil
}

// Incomplete says which shards are missing, or "".
func (s *Set) Incomplete() string {
	if len(s.Missing) == 0 {
		return ""
	}
	word := "shard"
	if len(s.Missing) > 1 {
		word = "shards"
	}
	return fmt.Sprintf("missing: %s %s of %d", word, ranges(s.Missing), s.Shards)
}

// ranges is ascending numbers in few words: 2, 5-7.
func ranges(l []int) string {
	var words []string
	for i := 0; i < len(l); {
		j := i
		for j+1 < len(l) && l[j+1] == l[j]+1 {
			j++
		}
		if i == j {
			words = append(words, fmt.Sprint(l[i]))
		} else {
			words = append(words, fmt.Sprintf("%d-%d", l[i], l[j]))
		}
		i = j + 1
	}
	return strings.Join(words, ", ")
}

// Asks reads what was asked for.
func (s *Set) Asks(v any) error { return json.Unmarshal(s.Asked, v) }

// Values are the results of a set as values of one type.
func Values[T any](s *Set) ([]T, error) {
	l := make([]T, len(s.Results))
	for i, r := range s.Results {
		if err := json.Unmarshal(r.Value, &l[i]); err != nil {
			return nil, fmt.Errorf("item %d: %w", r.Item, err)
		}
	}
	return l, nil
}
