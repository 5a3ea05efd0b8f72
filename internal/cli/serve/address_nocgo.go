//go:build !cgo

package serve

// withC says that this program is linked with the C library.
const withC = false
