// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the tables of docs/metrics.md anew")

// programs are where the code of each is, and what its table is marked by.
func programs() []string { return []string{"node-agent", "controllers"} }

func table(list []metric) string {
	var text strings.Builder
	text.WriteString("| metric | type | labels | what |\n|---|---|---|---|\n")
	for _, m := range list {
		labels := ""
		if len(m.labels) > 0 {
			labels = "`" + strings.Join(m.labels, "`, `") + "`"
		}
		fmt.Fprintf(&text, "| `%s` | %s | %s | %s |\n", m.name, m.kind, labels, m.help)
	}
	return text.String()
}

// TestTheListIsThatOfTheCode compares the tables of the page with what the code makes.
func TestTheListIsThatOfTheCode(t *testing.T) {
	path := repository("docs", "metrics.md")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	for _, program := range programs() {
		begin := "<!-- " + program + " -->\n"
		before, rest, found := strings.Cut(page, begin)
		have, after, ended := strings.Cut(rest, "<!-- end -->")
		if !found || !ended {
			t.Fatalf("the page has no table of %s", program)
		}
		want := table(metricsOf(t, program))
		if *update {
			page = before + begin + want + "<!-- end -->" + after
			continue
		}
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("metrics of %s (-code +page); go test ./test/metrics -update writes it anew:\n%s", program, diff)
		}
	}
	if *update {
		if err := os.WriteFile(path, []byte(page), 0o600); err != nil { //nolint:gosec // G703: the page of this repository
			t.Fatal(err)
		}
	}
}

// TestMetricsAreNamedAlike holds names to Prometheus' customs.
func TestMetricsAreNamedAlike(t *testing.T) {
	for _, program := range programs() {
		for _, m := range metricsOf(t, program) {
			if !regexp.MustCompile(`^sluice_[a-z]+(_[a-z]+)*$`).MatchString(m.name) {
				t.Errorf("%s is no name", m.name)
			}
			if strings.HasSuffix(m.name, "_total") != (m.kind == "counter") {
				t.Errorf("%s is a %s", m.name, m.kind)
			}
			if m.kind == "histogram" && !strings.HasSuffix(m.name, "_seconds") {
				t.Errorf("%s does not say its unit", m.name)
			}
			if !strings.HasSuffix(m.help, ".") {
				t.Errorf("the help of %s is no sentence", m.name)
			}
			if slices.Contains(m.labels, "") || len(slices.Compact(slices.Sorted(slices.Values(m.labels)))) != len(m.labels) {
				t.Errorf("%s has labels %v", m.name, m.labels)
			}
		}
	}
}

// TestDashboardAndRulesNameWhatThereIs looks for names of metrics in both, and for labels of theirs.
func TestDashboardAndRulesNameWhatThereIs(t *testing.T) {
	known := map[string]bool{}
	for _, program := range programs() {
		for _, m := range metricsOf(t, program) {
			known[m.name] = true
			if m.kind == "histogram" {
				for _, suffix := range []string{"_bucket", "_sum", "_count"} {
					known[m.name+suffix] = true
				}
			}
		}
	}
	names := regexp.MustCompile(`\bsluice_[a-z_]+\b`)
	for _, pattern := range []string{"dashboards/*.json", "rules/*.yaml"} {
		files, err := filepath.Glob(repository("charts", "sluice", filepath.FromSlash(pattern)))
		if err != nil || len(files) == 0 {
			t.Fatalf("no %s: %v", pattern, err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			found := names.FindAllString(string(data), -1)
			if len(found) == 0 {
				t.Errorf("%s names no metric", filepath.Base(file))
			}
			for _, name := range found {
				if !known[name] {
					t.Errorf("%s names %s, which there is not", filepath.Base(file), name)
				}
			}
		}
	}
}

// TestEveryAlertIsExplained has each on the page, and none that there is not.
func TestEveryAlertIsExplained(t *testing.T) {
	rules, err := os.ReadFile(repository("charts", "sluice", "rules", "sluice.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(repository("docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	unit, err := os.ReadFile(repository("test", "metrics", "rules_test.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	alerts := func(pattern string, in []byte) []string {
		var list []string
		for _, match := range regexp.MustCompile(pattern).FindAllSubmatch(in, -1) {
			list = append(list, string(match[1]))
		}
		slices.Sort(list)
		return slices.Compact(list)
	}
	want := alerts(`(?m)- alert: (\w+)`, rules)
	if diff := cmp.Diff(want, alerts("(?m)^\\| `(Sluice\\w+)` \\|", page)); diff != "" {
		t.Errorf("alerts (-rules +page):\n%s", diff)
	}
	if diff := cmp.Diff(want, alerts(`(?m)alertname: (\w+)`, unit)); diff != "" {
		t.Errorf("alerts (-rules +tested):\n%s", diff)
	}
}

// TestTheDashboardIsOne reads it as Grafana does, as far as can be told without it.
func TestTheDashboardIsOne(t *testing.T) {
	data, err := os.ReadFile(repository("charts", "sluice", "dashboards", "sluice.json"))
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Title, UID string
		Panels     []struct {
			ID      int
			Title   string
			Type    string
			GridPos struct{ H, W, X, Y int }
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(data, &board); err != nil {
		t.Fatal(err)
	}
	ids := map[int]bool{}
	for _, p := range board.Panels {
		if ids[p.ID] || p.Title == "" || p.GridPos.W == 0 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %d %q lies at %+v", p.ID, p.Title, p.GridPos)
		}
		ids[p.ID] = true
		if p.Type != "row" && (len(p.Targets) == 0 || p.Targets[0].Expr == "") {
			t.Errorf("panel %q shows nothing", p.Title)
		}
	}
	if board.Title == "" || board.UID == "" || len(ids) == 0 {
		t.Error("it has no title, UID or panels")
	}
}
