package progress

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"pnode/swarm/diagnose"
)

// Diagnosis returns the tests of the way to a contact as text: the verdict, what to do, and a line for each test.
func Diagnosis(r diagnose.Report) string {
	var b strings.Builder
	fmt.Fprintln(&b, r.Verdict)
	if r.Do != "" {
		fmt.Fprintf(&b, "what to do: %s\n", r.Do)
	}
	b.WriteString("\n")
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "test\tof\tresult\tseconds\tfound")
	for _, t := range r.Tests {
		took, says := "", t.Says
		if t.Did != "" {
			says = t.Did + ": " + t.Says
		}
		if t.Took > 0 {
			took = fmt.Sprintf("%.1f", t.Seconds)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", t.Part, t.Target, t.Result, took, says)
	}
	w.Flush() // into memory
	return b.String()
}
