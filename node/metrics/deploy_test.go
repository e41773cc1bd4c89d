package metrics

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The files for Prometheus and Grafana.
const (
	monitoring = "../../deploy/prometheus"
	dashboard  = "../../deploy/grafana/pnode.json"
)

// named finds metrics in an expression of PromQL, with the labels that it selects or groups by.
var (
	named    = regexp.MustCompile(`\bpnode_[a-z0-9_]+`)
	selector = regexp.MustCompile(`\bpnode_([a-z0-9_]+)\{([^}]*)\}`)
	matched  = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)`)
)

// expressions returns all of PromQL in the dashboard and in the rules, with where each is.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	text, err := os.ReadFile(dashboard)
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
		Annotations struct {
			List []struct{ Name, Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	for _, p := range board.Panels {
		for i, target := range p.Targets {
			all[fmt.Sprintf("panel %q, %d", p.Title, i)] = target.Expr
		}
	}
	for _, a := range board.Annotations.List {
		all[fmt.Sprintf("annotation %q", a.Name)] = a.Expr
	}
	if len(all) < 50 {
		t.Fatalf("%s has %d expressions", dashboard, len(all))
	}
	rules, err := os.ReadFile(filepath.Join(monitoring, "rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	all["rules.yaml"] = string(rules)
	return all
}

// TestDashboardAndRulesNameWhatIsExported: each metric is a family, and each label that is asked for is one of its own.
func TestDashboardAndRulesNameWhatIsExported(t *testing.T) {
	families := map[string]Family{}
	for _, f := range Families {
		families[f.Name] = f
	}
	for where, text := range expressions(t) {
		for _, name := range named.FindAllString(text, -1) {
			if _, known := families[strings.TrimPrefix(name, Prefix)]; !known {
				t.Errorf("%s: there is no metric %s", where, name)
			}
		}
		for _, found := range selector.FindAllStringSubmatch(text, -1) {
			for _, label := range matched.FindAllStringSubmatch(found[2], -1) {
				if l := label[1]; l != "instance" && l != "job" && !slices.Contains(families[found[1]].Labels, l) {
					t.Errorf("%s: %s%s has no label %s", where, Prefix, found[1], l)
				}
			}
		}
	}
}

// summed finds sums, with what they group by and the metric.
var summed = regexp.MustCompile(`sum by \(([^)]*)\) \(` + Prefix + `([a-z0-9_]+)`)

// TestDashboardSumsNothingTwice: every node exports gauges of the whole run, which are no more where more nodes are scraped.
func TestDashboardSumsNothingTwice(t *testing.T) {
	gauges := map[string]bool{}
	for _, f := range Families {
		gauges[f.Name] = !f.Counter
	}
	for where, text := range expressions(t) {
		for _, found := range summed.FindAllStringSubmatch(text, -1) {
			if gauges[found[2]] && !strings.Contains(found[1], "instance") {
				t.Errorf("%s: %s%s is summed over instances", where, Prefix, found[2])
			}
		}
	}
}

// TestPromtool has Prometheus' own tool check the configuration and the rules, try the rules on made-up values, and read each expression of
// the dashboard.
func TestPromtool(t *testing.T) {
	if _, err := exec.LookPath("promtool"); err != nil {
		t.Skip("needs promtool, of Debian's package prometheus")
	}
	board := filepath.Join(t.TempDir(), "dashboard.yaml")
	var b strings.Builder
	b.WriteString("groups:\n  - name: dashboard\n    rules:\n")
	n := 0
	for where, expr := range expressions(t) {
		if where == "rules.yaml" {
			continue
		}
		expr = strings.NewReplacer("$__rate_interval", "1m", "$instance", ".*").Replace(expr)
		quoted, err := json.Marshal(expr)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "      - {record: 'panel:%d', expr: %s}\n", n, quoted)
		n++
	}
	if err := os.WriteFile(board, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"check", "config", "prometheus.yaml"},
		{"check", "rules", "rules.yaml"},
		{"test", "rules", "rules_test.yaml"},
		{"check", "rules", board},
	} {
		cmd := exec.Command("promtool", args...)
		cmd.Dir = monitoring
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	check := exec.Command("promtool", "check", "metrics")
	check.Stdin = strings.NewReader(scrape(t, of(everything).Handler()))
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}
