package app

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// TestRules: which command lines a row refuses, and with which sentence. A switch that is off and a
// text that is empty are not given; a number is, also 0.
func TestRules(t *testing.T) {
	rules := []Rule{
		Needs("part other", "whole way", "--%s wants --whole"),
		Excludes("off whole", "text", "--off or --whole with --text"),
		Needs("num", "", "--%s is for nothing").If(false),
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, ""},
		{[]string{"--part"}, "--part wants --whole"},
		{[]string{"--num", "3", "--other"}, "--other wants --whole"},
		{[]string{"--part", "--whole"}, ""}, {[]string{"--part", "--way", "x"}, ""},
		{[]string{"--part=false"}, ""}, {[]string{"--part", "--whole=false"}, "--part wants --whole"},
		{[]string{"--off", "--text", "x"}, "--off or --whole with --text"}, {[]string{"--off", "--text", ""}, ""},
		{[]string{"--num", "0"}, ""},
	} {
		cmd := &cobra.Command{Use: "x"}
		for _, name := range []string{"part", "other", "whole", "off"} {
			cmd.Flags().Bool(name, false, "")
		}
		cmd.Flags().String("text", "", "")
		cmd.Flags().StringArray("way", nil, "")
		cmd.Flags().Int("num", 0, "")
		if err := cmd.ParseFlags(c.args); err != nil {
			t.Fatal(err)
		}
		wantUsage(t, Check(cmd, rules...), c.want)
		if len(c.args) == 2 && c.args[1] == "0" {
			wantUsage(t, Check(cmd, Needs("num", "", "--%s is for nothing")), "--num is for nothing")
		}
	}
}

// TestBounds: what is in bounds, and what is not.
func TestBounds(t *testing.T) {
	cmd := &cobra.Command{Use: "x"}
	for want, r := range map[string]Rule{
		"have 0 want 1":         AtLeast(0, 1, "have %d want %d"),
		"have -1ns":             AtLeast(-time.Nanosecond, 0, "have %v"),
		"have NaN":              AtLeast(math.NaN(), 0, "have %g"),
		"have 0, want more":     Above(0, 0, "have %d, want more"),
		"have 5 want 1 to 4":    Within(5, 1, 4, "have %d want 1 to %d"),
		"have 0 want less":      Within(0, 1, 4, "have %d want less"),
		"word \"c\", want a, b": OneOf("c", []string{"a", "b"}, "word %q, want %s"),
	} {
		wantUsage(t, Check(cmd, r), want)
		wantUsage(t, Check(cmd, r.If(false)), "")
	}
	wantUsage(t, Check(cmd, AtLeast(1, 1, "x"), Above(1, 0, "x"), Within(4, 1, 4, "x"), Within(1, 1, 4, "x"), OneOf("a", []string{"a"}, "x"), Not(false, "x")), "")
}

func wantUsage(t *testing.T, err error, want string) {
	t.Helper()
	var usage *UsageError
	switch {
	case err == nil && want == "":
	case !errors.As(err, &usage) || err.Error() != want:
		t.Errorf("have %v, want a usage error %q", err, want)
	}
}
