package course

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A handout has no folders named instructor (package handout).
const (
	// AnswersFile and SealedFile have what is so for the predictions, in a clone and in a handout:
	// paths in a lab's folder.
	AnswersFile = "instructor/predict.json"
	SealedFile  = "predict.sealed"
)

// Seal makes the answers of the lab unreadable to the eye and to a search, and not to anybody who
// runs this program: four letters could be tried anyway. They are shown after grading, and only
// beside a prediction that was kept before.
func (l *Lab) Seal(answers []byte) []byte {
	text := base64.StdEncoding.EncodeToString(l.mask(answers))
	var b bytes.Buffer
	for len(text) > 76 {
		b.WriteString(text[:76] + "\n")
		text = text[76:]
	}
	b.WriteString(text + "\n")
	return b.Bytes()
}

// mask is its own inverse.
func (l *Lab) mask(p []byte) []byte {
	out := make([]byte, len(p))
	var key [sha256.Size]byte
	for i, c := range p {
		if i%len(key) == 0 {
			key = sha256.Sum256(binary.LittleEndian.AppendUint64([]byte(l.Folder), uint64(i)))
		}
		out[i] = c ^ key[i%len(key)]
	}
	return out
}

// readSealed reads the answers of a handout.
func (l *Lab) readSealed(root string, q *[]Question) error {
	file := filepath.Join(l.Dir(root), SealedFile)
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	b, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(string(text), "\n", ""))
	if err == nil {
		err = json.Unmarshal(l.mask(b), q)
	}
	if err != nil {
		return fmt.Errorf("%s: bad seal: %w", file, err)
	}
	return nil
}
