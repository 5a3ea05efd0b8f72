package cli

import (
	"bytes"
	"strings"
	"testing"
)

// Without a terminal step says what to use instead, and wrong words are usage errors.
func TestStepRefuses(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"step", "truncate-race"}, 1, "no terminal"},
		{[]string{"step", "no-such"}, 2, "unknown scenario"},
		{[]string{"step", "truncate-race", "0:63"}, 2, "names step 0"},
		{[]string{"step", "truncate-race", "--policy", "nothing"}, 2, "nothing"},
	} {
		var out, errw bytes.Buffer
		if code := Main(c.args, strings.NewReader(""), &out, &errw); code != c.code || !strings.Contains(errw.String(), c.want) {
			t.Errorf("%v: exit %d, want %d, %q", c.args, code, c.code, errw.String())
		}
	}
}
