package app

// Bar is nil: a browser has no terminal.
type Bar struct{}

func (a *Run) NewBar(string, bool) *Bar   { return nil }
func (b *Bar) Set(string, uint64, uint64) {}
func (b *Bar) Done()                      {}
