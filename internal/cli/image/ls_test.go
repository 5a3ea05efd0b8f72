package image

import (
	"testing"
)

func TestModeString(t *testing.T) {
	for mode, want := range map[uint32]string{0o100644: "-rw-r--r--", 0o040755: "drwxr-xr-x", 0o104755: "-rwsr-xr-x", 0o102644: "-rw-r-Sr--",
		0o041777: "drwxrwxrwt", 0o120777: "lrwxrwxrwx", 0o020600: "crw-------"} {
		if got := modeString(mode); got != want {
			t.Errorf("modeString(%#o) = %s, want %s", mode, got, want)
		}
	}
}
