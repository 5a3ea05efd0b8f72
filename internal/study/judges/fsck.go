package judges

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"btrlab/internal/format"
	"btrlab/internal/progs/dump"
	"btrlab/internal/study/grade"
	"btrlab/internal/study/sandbox"
	"btrlab/internal/study/wrecks"
)

// Fsck is lab 15: images that are damaged, and what a repair leaves of them. The images are
// another five for each student.
type Fsck struct{}

// Images is the verb that writes the images of package wrecks.
const Images = "lab images"

// About says what the lab is.
func (Fsck) About() *About {
	return &About{N: 15, Folder: "15-be-the-fsck", Title: "Be the fsck", Minutes: 90, Blind: "answers are about images", File: answersFile, Try: Images}
}

// Workloads are the questions about each image.
func (l Fsck) Workloads() []Workload { return l.of("") }

// of are the questions of a student. An image is made when the first answer about it is judged.
// What follows from the damage counts only for whoever has found it: that nothing changes is soon
// guessed.
func (Fsck) of(student string) (rows []Workload) {
	for _, c := range wrecks.Classes {
		x := &exhibit{make: sync.OnceValues(func() (*wrecks.Image, error) { return wrecks.Make(student, c) })}
		add := func(name, asks string, points float64, judge func(im *wrecks.Image, answer string) (wrong string, err error)) {
			rows = append(rows, Workload{name: c.Name + "-" + name, asks: c.Name + ".img: " + asks, points: points,
				answer: func(_ context.Context, answer string, _ func(sandbox.Progress), r *grade.Row) error {
					return x.judge(answer, judge, r)
				}})
		}
		add("item", c.Asks+": the item that is gone or wrong, as TREE OBJECTID TYPE OFFSET", 7, x.item)
		add("file", "a path of the file that is hit", 2, x.file)
		add("after", "the file after check --repair, as MODE LINKS BYTES PATH", 4, x.after)
		add("left", "the findings of a check after check --repair, a number", 2, x.left)
		add("worse", "the file after check --repair if "+c.Worse, 5, x.worse)
	}
	return rows
}

// exhibit is an image on its way through the questions.
type exhibit struct {
	make  func() (*wrecks.Image, error)
	found bool // the item
}

// judge fills the row of a question.
func (x *exhibit) judge(answer string, judge func(im *wrecks.Image, answer string) (string, error), r *grade.Row) error {
	sandbox.Execute(r.Name)
	im, err := x.make()
	if err != nil {
		return err
	}
	wrong, err := judge(im, answer)
	if err != nil {
		return err
	}
	if wrong == "" && !x.found {
		wrong = fmt.Sprintf("counts once %s-item is right", im.Class.Name)
	}
	r.Pass, r.Result = wrong == "", wrong
	if r.Pass {
		r.Result = "right"
	}
	return nil
}

// item judges TREE OBJECTID TYPE OFFSET, with the words of btrlab dump tree.
func (x *exhibit) item(im *wrecks.Image, answer string) (string, error) {
	words := strings.Fields(strings.NewReplacer("(", " ", ")", " ").Replace(answer))
	if len(words) != 4 {
		return "want TREE OBJECTID TYPE OFFSET, as in fs 257 INODE_ITEM 0", nil
	}
	tree, ok := dump.TreeID(words[0])
	if !ok {
		return fmt.Sprintf("no tree %q", words[0]), nil
	}
	key := "(" + strings.ToUpper(strings.Join(words[1:], " ")) + ")"
	if tree == im.Tree && key == dump.Key(im.Key) {
		x.found = true
		return "", nil
	}
	if tree != im.Tree {
		return fmt.Sprintf("tree %s is sound", words[0]), nil
	}
	was, err := im.Was(tree, func(k format.Key) bool { return dump.Key(k) == key })
	switch {
	case err != nil:
		return "", err
	case was:
		return fmt.Sprintf("the item %s is there, and as it was", key), nil
	}
	return fmt.Sprintf("tree %s has never had an item %s", words[0], key), nil
}

// file judges a path of the file that is hit.
func (*exhibit) file(im *wrecks.Image, answer string) (string, error) {
	if slices.Contains(im.Names, path.Clean("/"+answer)) {
		return "", nil
	}
	return "another file is hit", nil
}

// after and worse judge what is left of the file.
func (*exhibit) after(im *wrecks.Image, answer string) (string, error) {
	return fate(answer, im, im.Repaired)
}

func (*exhibit) worse(im *wrecks.Image, answer string) (string, error) {
	return fate(answer, im, im.RepairedWorse)
}

// left judges how much a repair leaves.
func (*exhibit) left(im *wrecks.Image, answer string) (string, error) {
	f, err := im.Repaired()
	if err != nil {
		return "", err
	}
	n, err := strconv.Atoi(answer)
	switch {
	case err != nil || n < 0:
		return fmt.Sprintf("%q is no number of findings", answer), nil
	case n != f.Findings:
		return "the repair leaves another number of findings", nil
	}
	return "", nil
}

// fate judges MODE LINKS BYTES PATH, and names the first that is not so. It does not say whether a
// number is too large or too small: a few tries would find it.
func fate(answer string, im *wrecks.Image, repaired func() (*wrecks.Fate, error)) (string, error) {
	words := strings.Fields(answer)
	if len(words) != 4 {
		return "want MODE LINKS BYTES PATH, as in 0644 1 4096 /docs/garden-12", nil
	}
	var n [3]uint64
	for i, base := range []int{8, 10, 10} {
		var err error
		if n[i], err = strconv.ParseUint(words[i], base, 32); err != nil {
			return fmt.Sprintf("%q is no %s", words[i], []string{"mode in octal", "number of links", "number of bytes"}[i]), nil
		}
	}
	f, err := repaired()
	if err != nil {
		return "", err
	}
	p := path.Clean("/" + words[3])
	switch {
	case !slices.Contains(f.Paths, p) && slices.Contains(im.Names, p):
		return "the file does not have the name that it had", nil
	case !slices.Contains(f.Paths, p):
		return "the file is somewhere else", nil
	case uint32(n[0]) != f.Mode:
		return fmt.Sprintf("its mode is another one than %#o", n[0]), nil
	case uint32(n[1]) != f.Links:
		return fmt.Sprintf("it has another link count than %d", n[1]), nil
	case n[2] != f.Bytes:
		return fmt.Sprintf("not %d bytes, but another number can be read and are what they were", n[2]), nil
	}
	return "", nil
}
