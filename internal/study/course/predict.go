package course

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"btrlab/internal/prose"
)

// Question is asked before the lab. predict.json has what is asked; what is so is in AnswersFile,
// or SealedFile in a handout.
type Question struct {
	Ask     string   `json:"ask"`
	Choices []string `json:"choices"` // a, b, c ...
	Answer  string   `json:"answer"`
	Why     string   `json:"why"` // shown after grading, with the execution that shows it
	// Personal is set for a question that is no prediction: it is graded, and each student has
	// another one.
	Personal *Personal `json:"personal,omitempty"`
}

// Answer is a student's prediction and what is right, where the answers have been handed out.
type Answer struct {
	Ask   string `json:"ask"`
	Said  string `json:"said"`
	Right string `json:"right"`
	Why   string `json:"why"`
}

// Questions are the lab's predictions. The answers may be missing.
func (l *Lab) Questions(root string) ([]Question, error) {
	var q, answers []Question
	if err := l.readPredict(filepath.Join(l.Dir(root), "predict.json"), &q); err != nil {
		return nil, err
	}
	q = slices.DeleteFunc(q, func(q Question) bool { return q.Personal != nil })
	err := l.readPredict(filepath.Join(l.Dir(root), filepath.FromSlash(AnswersFile)), &answers)
	if errors.Is(err, fs.ErrNotExist) {
		err = l.readSealed(root, &answers)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return q, nil
	case err != nil:
		return nil, err
	case len(answers) != len(q):
		return nil, fmt.Errorf("lab %d has %d questions and %d answers", l.N, len(q), len(answers))
	}
	for i := range q {
		q[i].Answer, q[i].Why = answers[i].Answer, answers[i].Why
	}
	return q, nil
}

func (l *Lab) readPredict(path string, q *[]Question) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, q); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func (l *Lab) predictionFile(root string) string {
	return filepath.Join(root, "labs", "_grade", fmt.Sprintf("prediction-%02d.json", l.N))
}

// Predict keeps the answers, a letter for each question.
func (l *Lab) Predict(root string, said []string) error {
	qs, err := l.Questions(root)
	if err != nil {
		return err
	}
	if len(said) != len(qs) {
		return fmt.Errorf("have %s, want %d", prose.Count(len(said), "answer"), len(qs))
	}
	said = slices.Clone(said)
	for i, s := range said {
		s = strings.ToLower(s)
		said[i] = s
		if len(s) != 1 || s[0] < 'a' || int(s[0]-'a') >= len(qs[i].Choices) {
			return fmt.Errorf("answer %d is %q, want a letter from a to %c", i+1, s, 'a'+len(qs[i].Choices)-1)
		}
	}
	b, err := json.Marshal(said)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(l.predictionFile(root)), 0o755); err != nil {
		return err
	}
	return os.WriteFile(l.predictionFile(root), append(b, '\n'), 0o644)
}

// Said are the answers that Predict has kept, nil for none.
func (l *Lab) Said(root string) (said []string) {
	for _, a := range l.prediction(root) {
		said = append(said, a.Said)
	}
	return said
}

// prediction is what was predicted, beside what is right. None is no error.
func (l *Lab) prediction(root string) []Answer {
	b, err := os.ReadFile(l.predictionFile(root))
	if err != nil {
		return nil
	}
	var said []string
	qs, err := l.Questions(root)
	if json.Unmarshal(b, &said) != nil || err != nil || len(said) != len(qs) {
		return nil
	}
	var out []Answer
	for i, q := range qs {
		out = append(out, Answer{q.Ask, said[i], q.Answer, q.Why})
	}
	return out
}
