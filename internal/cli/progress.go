//go:build !js

package cli

import (
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// bar is a progress bar on standard error; a nil one does nothing. It is shown on a terminal only.
type bar struct {
	p     *mpb.Progress
	b     *mpb.Bar
	title string
}

// newBar starts a bar. It returns nil when standard error is no terminal.
func (a *app) newBar(title string, wanted bool) *bar {
	if !wanted || !isTerminal(a.err) {
		return nil
	}
	b := &bar{p: mpb.New(mpb.WithOutput(a.err), mpb.WithWidth(64)), title: title}
	b.b = b.p.New(0, mpb.BarStyle(), mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Any(func(decor.Statistics) string { return b.title + " " })),
		mpb.AppendDecorators(decor.Percentage()))
	return b
}

// set shows done of total under a title.
func (b *bar) set(title string, done, total uint64) {
	if b == nil {
		return
	}
	b.title = title
	b.b.SetTotal(int64(total), false)
	b.b.SetCurrent(int64(done))
}

// done removes the bar.
func (b *bar) done() {
	if b == nil {
		return
	}
	b.b.Abort(true)
	b.p.Wait()
}
