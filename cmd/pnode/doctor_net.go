package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"pnode/node"
	"pnode/node/progress"
)

// diagnoseNet tests the way to the contact of an invite, and shows the tests. The error is for the exit code.
func (e environment) diagnoseNet(ctx context.Context, target string, asJSON bool) error {
	var under func([]string)
	if isTerminal(e.stderr) {
		const width, begin = 79, "\r\x1b[K"
		under = func(tests []string) {
			text := ""
			if len(tests) > 0 {
				text = "testing " + strings.Join(tests, ", ")
			}
			fmt.Fprint(e.stderr, begin+text[:min(len(text), width)])
		}
	}
	report, err := node.Diagnose(ctx, target, under)
	if err != nil {
		return err
	}
	if asJSON {
		err = json.NewEncoder(e.stdout).Encode(report)
	} else {
		_, err = io.WriteString(e.stdout, progress.Diagnosis(report))
	}
	if err != nil {
		return err
	}
	return node.CannotJoin(report)
}

// showLinks prints over what the links of a run go, as the node in dir knows them.
func (e environment) showLinks(ctx context.Context, dir string, asJSON bool) error {
	client, err := dial(ctx, dir)
	if err != nil {
		return err
	}
	defer client.Close()
	st, err := client.Status(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(e.stdout).Encode(st.Links)
	}
	_, err = io.WriteString(e.stdout, progress.Links(st))
	return err
}
