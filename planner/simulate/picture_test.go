package simulate

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

// TestThePictureHasAllPolicies: XML with a line for each policy that ends at the last step, and an area of machines.
func TestThePictureHasAllPolicies(t *testing.T) {
	trace := traceOf(t, "0,add,a", "0,add,b", "0,add,c", "600000,remove,b", "900000,add,d", "1200000,remove,a")
	s := simulatorOf(t, fleetOf(gpu, gpu, gpu), trace, "measured")
	r := Report{Trace: trace, Constants: s.Constants}
	for _, p := range Policies {
		res, err := s.Play(p)
		if err != nil {
			t.Fatal(err)
		}
		if last := res.Samples[len(res.Samples)-1]; last.AtNanos != trace.EndNanos || last.Done != res.Steps {
			t.Errorf("%s: the last sample is %+v after %d steps, at %d", p.Name(), last, res.Steps, trace.EndNanos)
		}
		r.Results = append(r.Results, res)
	}
	var svg bytes.Buffer
	if err := r.SVG(&svg); err != nil {
		t.Fatal(err)
	}
	classes, text := map[string]int{}, ""
	for d := xml.NewDecoder(&svg); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch e := token.(type) {
		case xml.CharData:
			text += string(e) + "\n"
		case xml.StartElement:
			for _, a := range e.Attr {
				if a.Name.Local == "class" {
					classes[a.Value]++
				}
			}
		}
	}
	if classes["line"] != 2*len(Policies) || classes["fleet"] != 1 {
		t.Errorf("drawn: %v", classes)
	}
	for _, res := range r.Results {
		if !strings.Contains(text, res.Policy+": "+res.Kept()) {
			t.Errorf("%s is not named:\n%s", res.Policy, text)
		}
	}
}
