package starter_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"btrlab/labs/kit/starter"
)

// TestSums: the tests of each lab that waits for its student know the starter that is handed out.
func TestSums(t *testing.T) {
	n := 0
	for _, test := range []string{"02-locked-baseline/measure_test.go", "03-unlocked/unlock_test.go", "12-capstone/policy_test.go", "13-fair-lock/fairlock_test.go", "14-stable-pages/stable_test.go", "16-serve-a-disk/disk_test.go"} {
		b, err := os.ReadFile("../../" + test)
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(`starter\.Main\(m, "(\w+\.go)", "(\w+)"\)`).FindStringSubmatch(string(b))
		if m == nil {
			t.Errorf("%s does not wait", test)
			continue
		}
		file := "../../" + test[:strings.Index(test, "/")+1] + m[1]
		if b, err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
		if have := starter.Sum(b); have != m[2] {
			t.Errorf("%s has the sum %s, its test wants %s", file, have, m[2])
		}
		if crlf := strings.ReplaceAll(string(b), "\n", "\r\n"); starter.Sum([]byte(crlf)) != m[2] {
			t.Errorf("%s with CR LF is another text", file)
		}
		n++
	}
	if n != 6 {
		t.Errorf("%d labs wait, want 6", n)
	}
}
