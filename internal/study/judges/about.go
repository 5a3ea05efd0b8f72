package judges

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"btrlab/internal/study/sandbox"
)

// About is what is said of a lab, and what a submission may be.
type About struct {
	N       int    `json:"lab"`
	Folder  string `json:"folder"` // under labs
	Title   string `json:"title"`
	Minutes int    `json:"minutes"`
	// File is what the student changes.
	File string `json:"file"`
	// Code is what the student's Go may be; nil is a lab without Go.
	Code *sandbox.Code `json:"-"`
	// Given are the rows that the untouched starter passes: see count.
	Given []string `json:"-"`
	// Basis is the row without which no other counts: see count.
	Basis string `json:"-"`
	// Essay is the student's own text, if the lab wants one.
	Essay *Essay `json:"-"`
	// Try is the verb that tries an answer, in a lab without Go.
	Try string `json:"-"`
}

// Dir is the lab's folder below root.
func (l *About) Dir(root string) string { return filepath.Join(root, "labs", l.Folder) }

// HandoutFile marks the root of a handout, and has the digests of its starters, a line each as
// sha256sum writes them.
const HandoutFile = "HANDOUT"

// Untouched reports whether the lab's starter is as it was handed out. A tree that is no handout
// says yes: there a starter that was changed is a mistake.
func (l *About) Untouched(root string) (bool, error) {
	marker, err := os.ReadFile(filepath.Join(root, HandoutFile))
	if os.IsNotExist(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	b, err := os.ReadFile(filepath.Join(l.Dir(root), l.File))
	if err != nil {
		return false, err
	}
	return strings.Contains(string(marker), fmt.Sprintf("%x  labs/%s/%s\n", sha256.Sum256(b), l.Folder, l.File)), nil
}
