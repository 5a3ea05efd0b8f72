package cli

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const outputMark = "btrlab_output"

// outputFlag marks flags that name a file to write. A path that cannot be written is an error before the verb begins and not after its hour.
func outputFlag(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		if err := cmd.Flags().SetAnnotation(name, outputMark, []string{""}); err != nil {
			panic(err)
		}
	}
}

// checkOutputs tries the files that the flags of outputFlag name.
func checkOutputs(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if _, ok := f.Annotations[outputMark]; ok && err == nil {
			err = writable(f.Value.String())
		}
	})
	return err
}

// writable says why a file cannot be written. It leaves everything as it is.
func writable(path string) error {
	st, err := os.Stat(path)
	isNew := errors.Is(err, fs.ErrNotExist)
	if path == "" || err == nil && !st.Mode().IsRegular() && !st.IsDir() { // to open a pipe waits for its reader
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

// replaceFile writes a file anew: a reader sees the old one or the new one, and an error leaves the old one. What is no regular file, such as
// /dev/stdout, is written as it is.
func replaceFile(path string, write func(w io.Writer) error) error {
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

// keptOutput is a standard output that keeps its first error: a verb prints line by line and does not look, and what a full disk has cut off must
// not look whole.
type keptOutput struct {
	w   io.Writer
	err error
}

func (k *keptOutput) Write(p []byte) (int, error) {
	n, err := k.w.Write(p)
	if err != nil && k.err == nil {
		k.err = err
	}
	return n, err
}
