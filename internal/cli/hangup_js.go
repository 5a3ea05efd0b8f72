package cli

import "os"

// A browser has no terminal that is closed.
func hangup(signals ...os.Signal) []os.Signal { return signals }

func isHangup(os.Signal) bool { return false }
