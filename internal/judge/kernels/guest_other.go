//go:build !linux || portable

package kernels

import "os/exec"

// Out is the folder of the guest whose files the host gets.
const Out = "/out"

// IsGuest is false: a guest is a Linux.
func IsGuest([]string) bool { return false }

// Init is for a guest.
func Init() { panic("kernels: Init outside a guest") }

// dieWithUs does nothing: that is Linux's.
func dieWithUs(*exec.Cmd) {}
