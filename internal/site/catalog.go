package site

import (
	"strings"

	"btrlab/internal/policy"
	"btrlab/internal/sched/explore"
	"btrlab/internal/study/levels"
	"btrlab/internal/study/scenario"
)

// Catalog lists the scenarios, policies and toggles.
type Catalog struct {
	Groups    []GroupInfo        `json:"groups"`
	Scenarios []ScenarioInfo     `json:"scenarios"`
	Policies  []PolicyInfo       `json:"policies"`
	Toggles   []ToggleInfo       `json:"toggles"`
	Museum    []scenario.Exhibit `json:"museum"`
	Example   string             `json:"example"` // of a program of the visitor's
	Methods   []explore.Method   `json:"methods"`
}

// GroupInfo is a group of scenarios.
type GroupInfo struct {
	Name  string `json:"name"`
	About string `json:"about"`
}

// ScenarioInfo is a scenario.
type ScenarioInfo struct {
	Name  string   `json:"name"`
	Group string   `json:"group"`
	About string   `json:"about"`
	Goal  string   `json:"goal"`
	Tasks []string `json:"tasks"` // with what each does
	// those it is about; empty is all presets of buffered writes
	Policies []string `json:"policies"`
}

// PolicyInfo is a policy: a preset, or one with toggles switched on and off.
type PolicyInfo struct {
	Spec    string   `json:"spec"`
	About   string   `json:"about"`
	Promise string   `json:"promise"`
	On      []string `json:"on"` // toggles
}

// ToggleInfo is a switch of a policy.
type ToggleInfo struct {
	Name     string `json:"name"`
	Does     string `json:"does"`
	Effect   string `json:"effect"` // what it prevents or allows
	Source   string `json:"source"`
	Kernel   string `json:"kernel"`
	Shows    string `json:"shows"`    // what is to be seen of it, in words; may be empty
	Scenario string `json:"scenario"` // where; may be empty
	Wrong    bool   `json:"wrong"`    // an order that was a bug
}

func (d *Desk) catalog() *Catalog {
	c := &Catalog{Example: levels.TextExample, Museum: scenario.Museum, Methods: []explore.Method{explore.Bound, explore.DPOR, explore.State, explore.Naive}}
	for _, g := range scenario.Groups {
		c.Groups = append(c.Groups, GroupInfo{g.Name, g.About})
	}
	for _, s := range scenario.All() {
		g, _ := s.Group()
		x := ScenarioInfo{Name: s.Name, Group: g.Name, About: s.About, Goal: s.Aim(), Policies: s.Policies}
		for _, t := range s.Tasks {
			var ops []string
			for _, o := range t.Ops {
				ops = append(ops, o.String())
			}
			x.Tasks = append(x.Tasks, t.Name+": "+strings.Join(ops, ", then "))
		}
		c.Scenarios = append(c.Scenarios, x)
	}
	for _, p := range policy.All() {
		c.Policies = append(c.Policies, infoOf(&p))
	}
	for x := range policy.Switches() {
		t := x.Toggle()
		c.Toggles = append(c.Toggles, ToggleInfo{Name: t.Name, Does: t.Does, Effect: t.Effect, Source: t.Source, Kernel: t.Kernel, Shows: t.Shows, Scenario: t.Scenario, Wrong: x.Wrong()})
	}
	return c
}

func infoOf(p *policy.Policy) PolicyInfo {
	return PolicyInfo{Spec: p.Name, About: p.About, Promise: p.Contract().Promise(), On: append([]string{}, p.On()...)}
}

// policy is the policy of a specification.
func (d *Desk) policy(a struct{ Spec string }) (PolicyInfo, error) {
	p, err := policy.Parse(a.Spec)
	return infoOf(&p), err
}
