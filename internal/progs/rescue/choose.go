package rescue

import (
	"errors"
	gopath "path"
	"strings"
)

// ErrNothing is the error of Copy when it was asked for a part that is not there.
var ErrNothing = errors.New("nothing of that is left")

// within reports whether path is top or below it; "" is the top of the image.
func within(path, top string) bool {
	return top == "" || path == top || strings.HasPrefix(path, top+"/")
}

// partial reports whether a part is copied only.
func (o *CopyOptions) partial() bool { return o.Under != "" || o.Match != nil }

// chosen reports whether what has the path is copied.
func (o *CopyOptions) chosen(path string) bool {
	if !within(path, o.Under) {
		return false
	}
	if o.Match == nil {
		return true
	}
	for p := path; p != "" && p != "."; p = gopath.Dir(p) {
		if o.Match(p) {
			return true
		}
	}
	return false
}

// leads reports whether what is chosen may be below the path.
func (o *CopyOptions) leads(path string) bool { return within(path, o.Under) || within(o.Under, path) }

// wants reports whether the object of a path is copied, or looked into if it is a directory.
func (o *CopyOptions) wants(path string, dir bool) bool {
	return o.chosen(path) || dir && o.leads(path)
}

// part is the sink of the copy of a part. It enters a directory when something chosen is below, and
// makes paths those below Under.
type part struct {
	Sink
	o       *CopyOptions
	above   []*Object       // the directories above what is under way, the outermost first
	entered map[string]bool // paths of directories
}

// moved is an object at its path below Under; a file that is Under itself keeps its name.
func (p *part) moved(o *Object) *Object {
	n := *o
	switch {
	case p.o.Under == "":
	case o.Path == p.o.Under && o.Data == nil && o.Target == "" && p.entered[o.Path]:
		n.Path = ""
	default:
		n.Path = p.path(o.Path)
	}
	return &n
}

func (p *part) path(path string) string {
	switch {
	case p.o.Under == "":
		return path
	case path == p.o.Under:
		return gopath.Base(path)
	}
	return strings.TrimPrefix(path, p.o.Under+"/")
}

// Enter notes a directory, and makes it if it is chosen.
func (p *part) Enter(o *Object) error {
	for len(p.above) > 0 && !within(o.Path, p.above[len(p.above)-1].Path) {
		p.above = p.above[:len(p.above)-1]
	}
	if n := len(p.above); n == 0 || p.above[n-1].Path != o.Path {
		p.above = append(p.above, o)
	}
	if p.o.chosen(o.Path) {
		return p.enter(o.Path)
	}
	return nil
}

// enter makes the directories above a path, and the one of the path if it is the last.
func (p *part) enter(path string) error {
	for _, o := range p.above {
		if p.entered[o.Path] || !within(path, o.Path) || !within(o.Path, p.o.Under) {
			continue
		}
		p.entered[o.Path] = true
		if err := p.Sink.Enter(p.moved(o)); err != nil {
			return err
		}
	}
	return nil
}

// Leave is for those that were made.
func (p *part) Leave(o *Object) error {
	if !p.entered[o.Path] {
		return nil
	}
	return p.Sink.Leave(p.moved(o))
}

// Has asks for the object at its place.
func (p *part) Has(o *Object) bool { return p.Sink.Has(p.moved(o)) }

// Put makes the directories above first.
func (p *part) Put(o *Object) error {
	if err := p.enter(o.Path); err != nil {
		return err
	}
	return p.Sink.Put(p.moved(o))
}

// Link makes the directories above first.
func (p *part) Link(path, first string) error {
	if err := p.enter(path); err != nil {
		return err
	}
	return p.Sink.Link(p.path(path), p.path(first))
}
