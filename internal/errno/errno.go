// Package errno holds the system's answers: the error numbers that a file-system call returns,
// under the kernel's names, and the one wrapper that says which operation on which object got them.
//
// The numbers and the words are Linux's on every system: an image, a schedule and a result mean the
// same everywhere.
//
// The tool's own troubles (bad input, a corrupt image) are sentences, not errnos.
package errno

import (
	"fmt"
	"strings"
)

// OpError is an errno with the operation and the object that got it.
// Off and Len are bytes; they are left out of the text when Len is zero.
type OpError struct {
	Op   string // "write", "truncate", "lookup", ...
	Path string // what the user called the object, if known
	Ino  uint64 // inode number, 0 when there is none
	Off  uint64
	Len  uint64
	Err  error
}

// Error gives "write ino=257 off=4096 len=512: no space left on device".
func (e *OpError) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Path != "" {
		fmt.Fprintf(&b, " %s", e.Path)
	}
	if e.Ino != 0 {
		fmt.Fprintf(&b, " ino=%d", e.Ino)
	}
	if e.Len != 0 {
		fmt.Fprintf(&b, " off=%d len=%d", e.Off, e.Len)
	}
	fmt.Fprintf(&b, ": %v", e.Err)
	return b.String()
}

// Unwrap gives the errno to errors.Is.
func (e *OpError) Unwrap() error { return e.Err }
