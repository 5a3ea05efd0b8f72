//go:build !labs

package packed

var zipped []byte
