package app

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const outputMark = "btrlab_output"

// OutputFlag marks flags that name a file to write. A path that cannot be written is an error
// before the verb begins and not after its hour.
func OutputFlag(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		if err := cmd.Flags().SetAnnotation(name, outputMark, []string{""}); err != nil {
			panic(err)
		}
	}
}

// CheckOutputs tries the files that the flags of OutputFlag name.
func CheckOutputs(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if _, ok := f.Annotations[outputMark]; ok && err == nil {
			if err = refusedKind(cmd, f); err == nil {
				err = writable(f.Value.String())
			}
		}
	})
	return err
}

// refusedKind is an error for a file whose name promises what no verb writes.
func refusedKind(cmd *cobra.Command, f *pflag.Flag) error {
	switch kind := strings.ToLower(filepath.Ext(f.Value.String())); kind {
	case ".pdf", ".png", ".jpg", ".jpeg", ".gif", ".webp", ".ps", ".eps":
		return Usagef(cmd, "--%s %s: btrlab writes no %s, want a page (.html), which a browser prints as one", f.Name, f.Value, strings.ToUpper(kind[1:]))
	}
	return nil
}

// writable says why a file cannot be written. It leaves everything as it is.
func writable(path string) error {
	st, err := os.Stat(path)
	isNew := errors.Is(err, fs.ErrNotExist)
	// to open a pipe waits for its reader
	if path == "" || path == "-" || err == nil && !st.Mode().IsRegular() && !st.IsDir() {
		return nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	if isNew {
		err = os.Remove(path)
	}
	return errors.Join(err, f.Close())
}

// ReplaceFile writes a file anew: a reader sees the old one or the new one, and an error leaves the
// old one. What is no regular file, such as /dev/stdout, is written as it is.
func ReplaceFile(path string, write func(w io.Writer) error) error {
	mode := fs.FileMode(0o644)
	if st, err := os.Stat(path); err == nil {
		if !st.Mode().IsRegular() {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			return errors.Join(write(f), f.Close())
		}
		mode = st.Mode().Perm()
	}
	part := path + ".part~"
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	defer os.Remove(part)
	if err := errors.Join(write(f), f.Close()); err != nil {
		return err
	}
	return os.Rename(part, path)
}

// MakeDirs makes the directory dir and those above it that are missing. undo removes what it has
// made, if nothing is in it; so does an error.
func MakeDirs(dir string) (undo func(), err error) {
	var made []string // the innermost first
	for d := filepath.Clean(dir); ; d = filepath.Dir(d) {
		if _, err := os.Stat(d); !errors.Is(err, fs.ErrNotExist) || d == filepath.Dir(d) {
			break
		}
		made = append(made, d)
	}
	undo = func() {
		for _, d := range made {
			os.Remove(d) // somebody may have put something there
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		undo()
		return nil, err
	}
	return undo, nil
}

// MoveInto moves the files of folder part, which is on the same disk, into dir, over files of the
// same names. A folder with such a name is an error before the first has moved.
func MoveInto(dir, part string) error {
	list, err := os.ReadDir(part)
	if err != nil {
		return err
	}
	for _, e := range list {
		if st, err := os.Lstat(filepath.Join(dir, e.Name())); err == nil && st.IsDir() {
			return fmt.Errorf("%s is a folder, want a file or none", filepath.Join(dir, e.Name()))
		}
	}
	for _, e := range list {
		if err := os.Rename(filepath.Join(part, e.Name()), filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}
