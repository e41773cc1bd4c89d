package simulate

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"pnode/planner/plan"
)

// Report is a comparison of policies on one trace.
type Report struct {
	Results []Result
	Trace   Trace
	// Constants are those that all results rest on.
	Constants Constants
	// PriceMillis is the price of a machine for an hour, in thousandths; 0 for none.
	PriceMillis int64
	// Searches counts how often the planner was asked.
	Searches int
}

// Text writes a table for people, and what it rests on.
func (r Report) Text(w io.Writer) error {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(tab, "policy\ttime kept\ttokens/s\tsteps\tredone\tmean step")
	if r.PriceMillis > 0 {
		fmt.Fprint(tab, "\tcost\ttokens per unit")
	}
	fmt.Fprintln(tab)
	for _, res := range r.Results {
		fmt.Fprintf(tab, "%s\t%s\t%d\t%d\t%d\t%s", res.Policy, res.Kept(), res.TokensPerS, res.Steps, res.Redone+int64(res.GivenUp), plan.Time(res.Mean()))
		if r.PriceMillis > 0 {
			millis, tokens := res.Cost(r.PriceMillis)
			fmt.Fprintf(tab, "\t%d.%02d\t%d", millis/1000, millis%1000/10, tokens)
		}
		fmt.Fprintln(tab)
	}
	if err := tab.Flush(); err != nil {
		return err
	}
	for _, res := range r.Results {
		if why := res.Why(); why != "" {
			if _, err := fmt.Fprintf(w, "%s: %s\n", res.Policy, why); err != nil {
				return err
			}
		}
	}
	first := r.Results[0]
	_, err := fmt.Fprintf(w, "trace: %s, at most %s at a time; lost %d, came %d, told before %d\nconstants %s: %s\n",
		plan.Duration(r.Trace.EndNanos), plan.Count(r.Trace.Most(), "machine"), first.Losses, first.Joins, first.Notices,
		r.Constants.Name, r.Constants.Source)
	return err
}

// JSON writes one object for each policy.
func (r Report) JSON(w io.Writer) error {
	out := json.NewEncoder(w)
	for _, res := range r.Results {
		line := struct {
			Result
			Source        string `json:"source"`
			CostMillis    int64  `json:"cost_millis,omitempty"`
			TokensPerUnit int64  `json:"tokens_per_unit,omitempty"`
		}{Result: res, Source: r.Constants.Source}
		if r.PriceMillis > 0 {
			line.CostMillis, line.TokensPerUnit = res.Cost(r.PriceMillis)
		}
		if err := out.Encode(line); err != nil {
			return err
		}
	}
	return nil
}
