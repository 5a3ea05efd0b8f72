//go:build cgo

package cli

// withC says that this program is linked with the C library.
const withC = true
