// Package module names the Go module that this program is.
package module

// Path is the line "module" of go.mod. Names of functions in stacks, the imports that a lab allows,
// and the programs that are built of a student's code begin with it. Whoever publishes btrlab under
// another path changes it here, in go.mod and in the imports: see CONTRIBUTING.md.
const Path = "btrlab"
