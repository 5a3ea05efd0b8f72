package handout

import (
	"embed"
	"fmt"
	"path"
)

// What stands around the labs in a tree that is handed out and is no part of a clone: settings of
// an editor, a container, and the files with which GitHub and GitLab grade a push.
//
//go:embed around
var aroundFiles embed.FS

var around = map[string]string{
	"tasks.json":        ".vscode/tasks.json",
	"launch.json":       ".vscode/launch.json",
	"devcontainer.json": ".devcontainer/devcontainer.json",
	"grade.yml":         ".github/workflows/grade.yml",
	"gitlab-ci.yml":     ".gitlab-ci.yml",
	"Containerfile":     "Containerfile",
	"binder":            ".binder/Dockerfile",
}

func aroundTree() (list []File, err error) {
	entries, err := aroundFiles.ReadDir("around")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		to := around[e.Name()]
		if to == "" {
			return nil, fmt.Errorf("around/%s has no place in the tree", e.Name())
		}
		b, err := aroundFiles.ReadFile(path.Join("around", e.Name()))
		if err != nil {
			return nil, err
		}
		list = append(list, File{Path: to, Data: b})
	}
	return list, nil
}
