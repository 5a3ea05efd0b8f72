package own

import _ "embed"

// Template is the text of program.go: what btrlab practice --template writes.
//
//go:embed program.go
var Template string
