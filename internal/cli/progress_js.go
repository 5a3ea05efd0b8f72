package cli

// bar is nil: a browser has no terminal.
type bar struct{}

func (a *app) newBar(string, bool) *bar   { return nil }
func (b *bar) set(string, uint64, uint64) {}
func (b *bar) done()                      {}
