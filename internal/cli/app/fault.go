package app

import (
	"strings"

	"github.com/spf13/cobra"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
)

// Faults is --fault: the reads, writes and flushes that the device fails, to see how a verb takes
// it.
type Faults []dm.Fault

func (l *Faults) String() string { return "" }

func (l *Faults) Type() string { return "KIND:OP:N" }

func (l *Faults) Set(s string) error {
	f, err := dm.ParseFault(s)
	if err == nil {
		*l = append(*l, f)
	}
	return err
}

// On is dev with the faults.
func (l Faults) On(dev blockdev.Device) blockdev.Device {
	if len(l) == 0 {
		return dev
	}
	return dm.NewFlakey(dev, l...)
}

// FaultFlags gives --fault to the verbs that open an existing image.
func (a *Run) FaultFlags(root *cobra.Command) {
	for _, c := range root.Commands() {
		if c.GroupID == "files" || c.GroupID == "image" || c.Name() == "bench" {
			c.PersistentFlags().Var(&a.Faults, "fault", "let the Nth read, write or flush of the device fail, as eio:write:3 or enospc:write:3, or all from it on, as eio:write:3+; "+
				"torn:write:3 writes half of it, and nothing later; may be repeated")
			completeFault(c)
		}
	}
}

func completeFault(c *cobra.Command) {
	_ = c.RegisterFlagCompletionFunc("fault", func(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		var l []string
		for _, s := range []string{"eio:read:", "eio:write:", "eio:flush:", "enospc:write:", "torn:write:"} {
			if strings.HasPrefix(s, word) {
				l = append(l, s)
			}
		}
		return l, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	})
}
