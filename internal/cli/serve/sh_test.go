package serve

import (
	"io"
	"sync"
	"testing"

	"btrlab/internal/cli/app"
	"btrlab/internal/cli/image"
)

// TestLinesAtOnce: clients of a mount make their commands at the same time. The bug: cobra's help
// functions were set for each line, in a map of the whole process, and the server ended.
func TestLinesAtOnce(t *testing.T) {
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				a := verbs{Run: app.New(nil, io.Discard, io.Discard), onOpen: image.OnOpen}
				a.Open = &app.OpenImage{}
				root := a.lineCommands()
				root.SetArgs([]string{"help", "ls"})
				root.SetOut(io.Discard)
				if err := root.Execute(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
