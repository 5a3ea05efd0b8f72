//go:build !js

package app

import (
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// Bar is a progress bar on standard error; a nil one does nothing. It is shown on a terminal only.
type Bar struct {
	p     *mpb.Progress
	b     *mpb.Bar
	title string
}

// NewBar starts a bar. It returns nil when standard error is no terminal.
func (a *Run) NewBar(title string, wanted bool) *Bar {
	if !wanted || !IsTerminal(a.Err) {
		return nil
	}
	b := &Bar{p: mpb.New(mpb.WithOutput(a.Err), mpb.WithWidth(64)), title: title}
	b.b = b.p.New(0, mpb.BarStyle(), mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Any(func(decor.Statistics) string { return b.title + " " })),
		mpb.AppendDecorators(decor.Percentage()))
	return b
}

// Set shows done of total under a title.
func (b *Bar) Set(title string, done, total uint64) {
	if b == nil {
		return
	}
	b.title = title
	b.b.SetTotal(int64(total), false)
	b.b.SetCurrent(int64(done))
}

// Done removes the bar.
func (b *Bar) Done() {
	if b == nil {
		return
	}
	b.b.Abort(true)
	b.p.Wait()
}
