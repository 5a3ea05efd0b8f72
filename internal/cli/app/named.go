package app

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"slices"
	"strings"

	"btrlab/internal/blockdev"
	"btrlab/internal/errno"
	"btrlab/internal/progs/mkfs"
)

// NotEmptyError says that copy-on-write cannot be switched for a file that has data.
type NotEmptyError struct {
	Path string // in the image
	Size uint64 // bytes
}

func (e *NotEmptyError) Error() string {
	return fmt.Sprintf("%s has %d bytes, want an empty file: %v", e.Path, e.Size, errno.EINVAL)
}

func (e *NotEmptyError) Unwrap() error { return errno.EINVAL }

// Named puts the name of the image before an error that does not have it yet.
func Named(image string, err error) error {
	if err == nil || anyError(err, func(err error) bool {
		of := object(err)
		return of == image || strings.HasPrefix(of, image+":/") || strings.HasPrefix(of, image+" partition ") || strings.HasPrefix(of, image+" offset ")
	}) {
		return err
	}
	return &blockdev.NameError{Name: image, Err: err}
}

// object is the file, device or image that one error of a chain is about; "" if it names none.
func object(err error) string {
	switch e := err.(type) {
	case *errno.OpError:
		return e.Path
	case *iofs.PathError:
		return e.Path
	case *blockdev.NameError:
		return e.Name
	case *mkfs.ExistsError:
		return e.Device
	case *NotEmptyError:
		return e.Path
	}
	return ""
}

// anyError reports whether f holds for err or for one that it wraps.
func anyError(err error, f func(error) bool) bool {
	for err != nil {
		if f(err) {
			return true
		}
		switch e := err.(type) {
		case interface{ Unwrap() error }:
			err = e.Unwrap()
		case interface{ Unwrap() []error }:
			return slices.ContainsFunc(e.Unwrap(), func(err error) bool { return anyError(err, f) })
		default:
			return false
		}
	}
	return false
}

// Whole is err, which opening image came to, or says that the image is wanted where a file in it
// was named.
func Whole(image string, err error) error {
	spec := image
	if strings.HasSuffix(spec, ":") {
		spec += "/"
	}
	if name, _, ok := splitSpec(spec); ok && errors.Is(err, iofs.ErrNotExist) {
		if _, serr := os.Stat(name); serr == nil {
			return fmt.Errorf("names a file in an image, want the image: %s", name)
		}
	}
	return err
}

// InImage names the image and, in an error that names neither path nor a file below, path.
func InImage(image, path string, err error) error {
	if err == nil || errors.Is(err, ErrInterrupted) {
		return err
	}
	if path != "/" && anyError(err, func(err error) bool {
		_, host := err.(*iofs.PathError)
		of := object(err)
		return !host && (of == path || strings.HasPrefix(of, path+"/"))
	}) {
		return &blockdev.NameError{Name: image, Err: err}
	}
	return &blockdev.NameError{Name: image + ":" + path, Err: err}
}
