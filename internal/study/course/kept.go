package course

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"btrlab/internal/study/sandbox"
)

// Kept is the last grade of a lab in this clone: what btrlab lab status shows.
type Kept struct {
	Score float64 `json:"score"`
	Max   float64 `json:"max"`
	Pass  bool    `json:"pass"`
	// Dir is the folder that was graded and Student for whom, and Digest is of its files then.
	Dir     string `json:"dir"`
	Student string `json:"student,omitempty"`
	Digest  string `json:"digest"`
}

func (l *Lab) keptFile(root string) string {
	return filepath.Join(root, "labs", "_grade", fmt.Sprintf("score-%02d.json", l.N))
}

// Keep keeps the grade of what was graded; digest is Digest of the files as they were then.
func (l *Lab) Keep(root string, r *Report, o Options, digest string) error {
	dir := o.Dir
	if dir != "" {
		var err error
		if dir, err = filepath.Abs(dir); err != nil {
			return err
		}
	}
	b, err := json.Marshal(Kept{r.Score, r.Max, r.Pass, dir, o.Student, digest})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(l.keptFile(root)), 0o755); err != nil {
		return err
	}
	return sandbox.Replace(l.keptFile(root), b)
}

// Kept is the last grade, nil for none, and whether the files have changed since.
func (l *Lab) Kept(root string) (k *Kept, changed bool, err error) {
	b, err := os.ReadFile(l.keptFile(root))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, false, nil
	case err != nil:
		return nil, false, err
	}
	k = &Kept{}
	if err := json.Unmarshal(b, k); err != nil {
		return nil, false, fmt.Errorf("%s: %w; remove it and grade lab %d again", l.keptFile(root), err, l.N)
	}
	return k, l.Digest(root, Options{Dir: k.Dir, Student: k.Student}) != k.Digest, nil
}

// Digest is of all that Grade reads of a student's folder.
func (l *Lab) Digest(root string, o Options) string {
	if o.Dir == "" {
		o.Dir = l.Dir(root)
	}
	return l.digest(o.Dir, o.Student)
}
