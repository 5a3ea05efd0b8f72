package jobs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"btrlab/internal/hostio"
	"btrlab/internal/judge/conform"
	"btrlab/internal/judge/kernels"
)

// RecordFile is the file of the jobs "conform" and "pairs" with the recording.
const RecordFile = "record.txt"

// record does the operations of package conform under the kernel's tracepoints. Arguments: how
// often each is done, and the names of the operations; none is all.
func record(_ io.Writer, args []string) error {
	return recording(args, func(k *conform.Kernel, runs int, names []string) (func(io.Writer) error, error) {
		var r conform.Recorder
		for i := range conform.Ops {
			op := &conform.Ops[i]
			for range runs {
				if !among(names, op.Name) {
					continue
				}
				steps, err := k.Steps(op)
				for again := 0; errors.Is(err, hostio.ErrDropped) && again < 3; again++ {
					steps, err = k.Steps(op)
				}
				if err != nil {
					return nil, fmt.Errorf("%s: %w", op.Name, err)
				}
				r.AddSteps(op, steps)
			}
		}
		return func(w io.Writer) error { return r.WriteKernel(w, k) }, nil
	})
}

// recordPairs does pairs of operations under the kernel's tracepoints. Arguments: how often each is
// done at once, and the names of the pairs; none is all.
func recordPairs(_ io.Writer, args []string) error {
	return recording(args, func(k *conform.Kernel, runs int, names []string) (func(io.Writer) error, error) {
		r, err := k.RecordPairs(names, runs, nil)
		if err != nil {
			return nil, err
		}
		return r.Write, nil
	})
}

// recording opens the kernel's tracepoints, and gives the host what ask writes of them.
func recording(args []string, ask func(k *conform.Kernel, runs int, names []string) (write func(io.Writer) error, err error)) (err error) {
	if len(args) == 0 {
		return errors.New("want the number of runs")
	}
	runs, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	k, err := conform.Open(os.TempDir())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.Close()) }()
	write, err := ask(k, runs, args[1:])
	if err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(kernels.Out, RecordFile))
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// among reports whether a list that is not empty has the name.
func among(list []string, name string) bool {
	return len(list) == 0 || slices.Contains(list, name)
}
