package cli

import (
	"io"
)

// keptOutput is a standard output that keeps its first error: a verb prints line by line and does
// not look, and what a full disk has cut off must not look whole.
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
