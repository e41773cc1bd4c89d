package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestPrometheusScrapesANode: a real Prometheus reads all metrics of a real node, with the rules of deploy/prometheus, and none of them fails.
func TestPrometheusScrapesANode(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("prometheus"); err != nil {
		t.Skip("needs prometheus, of Debian's package of that name")
	}
	node := start(t, "train", "--config", runFile(t, 1_000_000), "--dir", filepath.Join(t.TempDir(), "run"), "--metrics", "127.0.0.1:0", "--json")
	at := node.stderr.await(t, `metrics: http://(\S+)/metrics\n`)[1]
	node.until(6) // a checkpoint and a held-out loss
	rules, err := filepath.Abs("../../deploy/prometheus/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	text := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [%q]\nscrape_configs:\n  - job_name: pnode\n    static_configs: [{targets: [%q]}]\n", rules, at)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	said := &watched{fresh: make(chan struct{}, 1)}
	server := exec.Command("prometheus", "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address=127.0.0.1:0")
	server.Stderr = said
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Process.Kill(); _ = server.Wait() }() // it is killed
	address := said.await(t, `Listening on".* address=(\S+)\n`)[1]  // from its own log
	said.await(t, "Server is ready to receive web requests")

	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	deadline := time.After(endToEndTimeout)
	ask := func(query string, enough func(value string) bool) {
		t.Helper()
		for {
			value := queried(t, address, query)
			if enough(value) {
				return
			}
			select {
			case <-tick.C:
			case <-deadline:
				t.Fatalf("%s is %q:\n%s", query, value, said)
			}
		}
	}
	one := func(value string) bool { return value == "1" }
	ask(`up{job="pnode"}`, one)
	ask(`pnode_step > bool 5`, one)
	ask(`pnode_checkpoint_step > bool 0`, one)
	ask(`pnode_node_state{state="training"}`, one)
	ask(`pnode_raft_leader`, one)
	ask(`pnode_learning_rate > bool 0`, one)
	ask(`pnode_gradient_norm > bool 0`, one)
	ask(`pnode_held_out_loss > bool 0`, one)
	ask(`process_resident_memory_bytes > bool 1e6`, one)
	ask(`scrape_samples_scraped > bool 100`, one)
	ask(`increase(pnode_committed_steps_total[1m]) > bool 0`, one)
	ask(`rate(pnode_committed_tokens_total[1m]) > bool 0`, one)

	var answer struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, Health, LastError string }
			}
		}
	}
	known := func() bool { // each rule was evaluated
		get(t, "http://"+address+"/api/v1/rules", &answer)
		for _, g := range answer.Data.Groups {
			for _, r := range g.Rules {
				if r.Health == "unknown" {
					return false
				}
			}
		}
		return true
	}
	for !known() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("rules: %+v", answer)
		}
	}
	if len(answer.Data.Groups) != 1 || len(answer.Data.Groups[0].Rules) < 10 {
		t.Fatalf("rules: %+v", answer)
	}
	for _, r := range answer.Data.Groups[0].Rules {
		if r.Health != "ok" {
			t.Errorf("%s: %s, %s", r.Name, r.Health, r.LastError)
		}
	}
	node.interrupt()
	node.finish(0)
}

// queried returns the value of a query's only sample, "" where there is none.
func queried(t *testing.T, address, query string) string {
	t.Helper()
	var answer struct {
		Status string
		Data   struct {
			Result []struct{ Value [2]json.RawMessage }
		}
	}
	get(t, "http://"+address+"/api/v1/query?query="+url.QueryEscape(query), &answer)
	if answer.Status != "success" {
		t.Fatalf("%s: %+v", query, answer)
	}
	if len(answer.Data.Result) != 1 {
		return ""
	}
	return strings.Trim(string(answer.Data.Result[0].Value[1]), `"`)
}

func get(t *testing.T, from string, into any) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, from, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		t.Fatalf("%s: %s, %v", from, resp.Status, err)
	}
}

// TestNumbersAreKept: a CSV file and a folder of event files get each step with the loss that --json has, over a start that resumes the run, and
// a collector traces of some steps.
func TestNumbersAreKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	run, table, board := filepath.Join(dir, "run"), filepath.Join(dir, "run.csv"), filepath.Join(dir, "tb")
	var traces atomic.Int64
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err == nil && r.URL.Path == "/v1/traces" && bytes.Contains(body, []byte(`"name":"step 3"`)) {
			traces.Add(1)
		}
	}))
	defer collector.Close()
	kept := []string{"--dir", run, "--csv", table, "--tensorboard", board, "--otlp", collector.URL, "--otlp-every", "3", "--json"}
	first := start(t, append([]string{"train", "--config", runFile(t, 12)}, kept...)...)
	first.until(6)
	first.interrupt()
	want := first.finish(0)
	if traces.Load() != 1 {
		t.Errorf("step 3 was traced %d times", traces.Load())
	}
	second := start(t, append([]string{"train", "--resume"}, kept...)...)
	for step, loss := range second.finish(0) {
		want[step] = loss
	}
	f, err := os.Open(table)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil || len(rows) < 13 || len(want) != 12 {
		t.Fatalf("%d rows of %d steps: %v", len(rows), len(want), err)
	}
	for _, row := range rows[1:] {
		step, err := strconv.Atoi(row[2])
		got, lossErr := strconv.ParseFloat(row[3], 64)
		loss, jsonErr := want[step].Float64()
		if err := errors.Join(err, lossErr, jsonErr); err != nil || got != loss {
			t.Errorf("step %d has loss %v, --json says %v: %v", step, got, want[step], err)
		}
		if row[6] == "" || row[7] == "" || row[9] == "" || row[10] == "" {
			t.Errorf("step %d lacks a number: %q", step, row)
		}
	}
	files, err := filepath.Glob(filepath.Join(board, "events.out.tfevents.*"))
	if err != nil || len(files) != 2 {
		t.Errorf("event files %q, %v; want one for each start", files, err)
	}
}
