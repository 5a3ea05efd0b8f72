package study

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"btrlab/internal/cli/app"
	"btrlab/internal/policy"
	"btrlab/internal/prose"
)

func (a verbs) policy() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "policy",
		Short:   "list the locking policies, show what each promises, and try one of your own",
		Example: "  btrlab policy show unlocked",
	}
	cmd.AddCommand(a.policyList(), a.policyShow(), a.policyNew(), a.policyTest())
	return cmd
}

// policyInfo is a policy as list and show print it with --json.
type policyInfo struct {
	Name    string       `json:"name"`
	About   string       `json:"about"`
	Atom    string       `json:"atom"` // what no other write can be mixed into
	Holds   bool         `json:"truncate_holds"`
	Toggles []toggleInfo `json:"toggles"` // that are on
}

// toggleInfo is a toggle as list and show print it with --json.
type toggleInfo struct {
	Name     string   `json:"name"`
	Does     string   `json:"does"`
	Effect   string   `json:"effect"` // what it prevents or allows
	Source   string   `json:"source"`
	Kernel   string   `json:"kernel"`
	Shows    string   `json:"shows,omitempty"`
	Scenario string   `json:"scenario,omitempty"`
	Base     string   `json:"base,omitempty"` // the policy with which the scenario shows it
	Policies []string `json:"policies"`       // presets in which it is on
}

func infoOf(p *policy.Policy) policyInfo {
	c := p.Contract()
	info := policyInfo{Name: p.Name, About: p.About, Atom: c.WriteAtom.String(), Holds: c.TruncateHolds, Toggles: []toggleInfo{}}
	for x := range p.All() {
		info.Toggles = append(info.Toggles, toggleOf(x))
	}
	return info
}

func toggleOf(x policy.Switch) toggleInfo {
	g := x.Toggle()
	info := toggleInfo{Name: g.Name, Does: g.Does, Effect: g.Effect, Source: g.Source, Kernel: g.Kernel, Shows: g.Shows, Scenario: g.Scenario, Base: g.Base, Policies: []string{}}
	for _, p := range policy.All() {
		if p.Has(x) {
			info.Policies = append(info.Policies, p.Name)
		}
	}
	return info
}

func (a verbs) policyList() *cobra.Command {
	var asJSON, all bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "list the policies and the toggles",
		Long: `List shows the policies that have names, then the toggles that the course is about, each with its effect; with --all all of them, by what they have to do with. A toggle is one published change, a WRONG toggle an order that was a bug.
A policy is written NAME, or NAME with toggles switched on by + and off by !, as modern+WRITE_RANGE_LOCK!DIO_SHARED.`,
		Example: `  btrlab policy list
  btrlab policy list --all`,
		Args: cobra.NoArgs,
	}
	app.JSONFlag(cmd, &asJSON)
	cmd.Flags().BoolVar(&all, "all", false, "show all toggles; JSON always has them all")
	cmd.RunE = func(*cobra.Command, []string) error {
		var out struct {
			Policies []policyInfo `json:"policies"`
			Toggles  []toggleInfo `json:"toggles"`
		}
		for _, p := range policy.All() {
			out.Policies = append(out.Policies, infoOf(&p))
		}
		for x := range policy.Switches() {
			out.Toggles = append(out.Toggles, toggleOf(x))
		}
		if asJSON {
			return a.PrintJSON(out)
		}
		width := 0
		for _, p := range out.Policies {
			width = max(width, len(p.Name))
		}
		var b strings.Builder
		for _, p := range out.Policies {
			hang(&b, fmt.Sprintf("%-*s  ", width, p.Name), p.About)
		}
		listToggles(&b, all)
		_, err := fmt.Fprint(a.Out, b.String())
		return err
	}
	return cmd
}

// listToggles writes the toggles of the course, or all of them by group, each with its effect.
func listToggles(b *strings.Builder, all bool) {
	groups := map[policy.Group][]policy.Switch{}
	left := 0
	for x := range policy.Switches() {
		if all || x.Toggle().Course {
			groups[x.Group()] = append(groups[x.Group()], x)
		} else {
			left++
		}
	}
	for _, g := range slices.Sorted(maps.Keys(groups)) {
		fmt.Fprintf(b, "\n%v:\n", g)
		for _, x := range groups[g] {
			hang(b, "  ", x.String()+": "+x.Toggle().Effect)
		}
	}
	if left > 0 {
		b.WriteByte('\n')
		hang(b, "", fmt.Sprintf("--all shows %d more; policy show TOGGLE tells the story of one", left))
	}
}

// hang writes text after first, and its later lines as far to the right.
func hang(b *strings.Builder, first, text string) {
	for _, l := range prose.Hang(first, strings.Repeat(" ", max(len(first), 4)), text, prose.Width) {
		b.WriteString(l + "\n")
	}
}

func (a verbs) policyShow() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show POLICY|TOGGLE",
		Short: "show what a policy promises and switches on, or the story of a toggle",
		Example: `  btrlab policy show unlocked
  btrlab policy show modern+WRITE_RANGE_LOCK
  btrlab policy show SETSIZE_DRAIN_FIRST`,
		Args: cobra.ExactArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var names []string
			for _, p := range policy.All() {
				names = append(names, p.Name)
			}
			for x := range policy.Switches() {
				names = append(names, x.String())
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
	app.JSONFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var b strings.Builder
		if x, ok := policy.Find(args[0]); ok {
			info := toggleOf(x)
			if asJSON {
				return a.PrintJSON(info)
			}
			b.WriteString(info.Name + "\n")
			info.story(&b, "")
			on := "no policy that has a name"
			if len(info.Policies) > 0 {
				on = strings.Join(info.Policies, ", ")
			}
			hang(&b, "  on in: ", on)
			_, err := fmt.Fprint(a.Out, b.String())
			return err
		}
		p, err := policy.Parse(args[0])
		if err != nil {
			return app.Usagef(cmd, "%v", err)
		}
		info := infoOf(&p)
		if asJSON {
			return a.PrintJSON(info)
		}
		b.WriteString(info.Name + "\n")
		hang(&b, "  about: ", info.About)
		hang(&b, "  promises: ", p.Contract().Promise())
		for _, g := range info.Toggles {
			b.WriteByte('\n')
			g.print(&b, "  ")
		}
		_, err = fmt.Fprint(a.Out, b.String())
		return err
	}
	return cmd
}

func (g *toggleInfo) print(b *strings.Builder, indent string) {
	b.WriteString(indent + g.Name + "\n")
	g.story(b, indent)
}

// command is what runs the scenario.
func (g *toggleInfo) command() string {
	if strings.HasPrefix(g.Scenario, "testdata/") {
		return "btrlab crash --script " + g.Scenario + " IMAGE --policy " + g.Base
	}
	return "btrlab explore " + g.Scenario + " --policy " + g.Base
}

// turned is the policy of command with the toggle turned.
func (g *toggleInfo) turned() string {
	x, _ := policy.Find(g.Name)
	if policy.MustParse(g.Base).Has(x) {
		return g.Base + "!" + g.Name
	}
	return g.Base + "+" + g.Name
}

// story prints what a toggle does, where it comes from and what shows it.
func (g *toggleInfo) story(b *strings.Builder, indent string) {
	hang(b, indent+"  does: ", g.Does)
	hang(b, indent+"  effect: ", g.Effect)
	hang(b, indent+"  source: ", g.Source)
	hang(b, indent+"  kernel: ", g.Kernel)
	if g.Shows != "" {
		hang(b, indent+"  shows: ", g.Shows)
	}
	if g.Scenario != "" {
		hang(b, indent+"  try: ", g.command()+", and with "+g.turned())
	}
}
