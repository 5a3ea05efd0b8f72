package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"btrlab/internal/blockdev"
	"btrlab/internal/blockdev/dm"
)

// faults is --fault: the reads, writes and flushes that the device fails, to see how a verb takes
// it.
type faults []dm.Fault

func (l *faults) String() string { return "" }
func (l *faults) Type() string   { return "KIND:OP:N" }

func (l *faults) Set(s string) error {
	f, err := dm.ParseFault(s)
	if err == nil {
		*l = append(*l, f)
	}
	return err
}

// on is dev with the faults.
func (l faults) on(dev blockdev.Device) blockdev.Device {
	if len(l) == 0 {
		return dev
	}
	return dm.NewFlakey(dev, l...)
}

// faultFlags gives --fault to the verbs that open an existing image.
func (a *app) faultFlags(root *cobra.Command) {
	for _, c := range root.Commands() {
		if c.GroupID == "files" || c.GroupID == "image" || c.Name() == "bench" {
			c.PersistentFlags().Var(&a.faults, "fault", "let the Nth read, write or flush of the device fail, as eio:write:3 or enospc:write:3, or all from it on, as eio:write:3+; "+
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
