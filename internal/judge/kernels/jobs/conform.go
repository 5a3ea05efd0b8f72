package jobs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"btrlab/internal/hostio"
	"btrlab/internal/judge/conform"
	"btrlab/internal/judge/kernels"
)

// RecordFile is the file of the jobs "conform" and "pairs" with the recording.
const RecordFile = "record.txt"

// record does the operations of package conform under the kernel's tracepoints. Arguments: how
// often each is done, and the names of the operations; none is all.
func record(_ io.Writer, args []string) (err error) {
	if len(args) == 0 {
		return errors.New("conform: want the number of runs")
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
	var r conform.Recorder
	for i := range conform.Ops {
		op := &conform.Ops[i]
		for range runs {
			if !among(args[1:], op.Name) {
				continue
			}
			steps, err := k.Steps(op)
			for again := 0; errors.Is(err, hostio.ErrDropped) && again < 3; again++ {
				steps, err = k.Steps(op)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", op.Name, err)
			}
			r.AddSteps(op, steps)
		}
	}
	f, err := os.Create(filepath.Join(kernels.Out, RecordFile))
	if err != nil {
		return err
	}
	return errors.Join(r.WriteKernel(f, k), f.Close())
}

// recordPairs does pairs of operations under the kernel's tracepoints. Arguments: how often each is
// done at once, and the names of the pairs; none is all.
func recordPairs(_ io.Writer, args []string) (err error) {
	if len(args) == 0 {
		return errors.New("pairs: want the number of runs")
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
	r, err := k.RecordPairs(args[1:], runs, nil)
	if err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(kernels.Out, RecordFile))
	if err != nil {
		return err
	}
	return errors.Join(r.Write(f), f.Close())
}

// among reports whether a list that is not empty has the name.
func among(list []string, name string) bool {
	for _, s := range list {
		if s == name {
			return true
		}
	}
	return len(list) == 0
}
