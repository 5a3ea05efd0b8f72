package app

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"testing"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
)

// An error names its image and its file once each. That is asked of the errors, not of their text:
// "a" is in "a.img: bad magic" and in nothing that is called a.
func TestNamed(t *testing.T) {
	plain := errors.New("bad a")
	for _, c := range []struct {
		err  error
		want string
	}{
		{plain, "a: bad a"},
		{&blockdev.NameError{Name: "a", Err: plain}, "a: bad a"},
		{fmt.Errorf("read: %w", &iofs.PathError{Op: "open", Path: "a", Err: plain}), "read: open a: bad a"},
		{errors.Join(plain, &errno.OpError{Op: "write", Path: "a", Err: plain}), "bad a\nwrite a: bad a"},
	} {
		if got := Named("a", c.err).Error(); got != c.want {
			t.Errorf("have %q, want %q", got, c.want)
		}
	}
	op := func(path string) error { return &errno.OpError{Op: "read", Path: path, Err: plain} }
	for _, c := range []struct {
		path string
		err  error
		want string
	}{
		{"/f", plain, "a:/f: bad a"},
		{"/f", op("/f"), "a: read /f: bad a"},
		{"/f", op("/f/g"), "a: read /f/g: bad a"},
		{"/f", op("/far"), "a:/f: read /far: bad a"},
		// the host's /f
		{"/f", &iofs.PathError{Op: "open", Path: "/f", Err: plain}, "a:/f: open /f: bad a"},
		{"/", op("/f"), "a:/: read /f: bad a"},
		{"/f", ErrInterrupted, ErrInterrupted.Error()},
	} {
		err := InImage("a", c.path, c.err)
		if err.Error() != c.want {
			t.Errorf("%s: have %q, want %q", c.path, err, c.want)
		}
		if c.err != ErrInterrupted && Named("a", err).Error() != c.want {
			t.Errorf("%s: the image is named twice: %v", c.path, Named("a", err))
		}
	}
}
