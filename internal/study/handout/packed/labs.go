//go:build labs

package packed

import _ "embed"

//go:embed labs.zip
var zipped []byte
