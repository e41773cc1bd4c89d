package devices

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"time"
)

const (
	// patience is how long a driver may be silent: its compiler may have to build all kernels
	// on a busy machine.
	patience = 3 * time.Minute
	// maxLine and maxLines bound what a process tells, maxWords what is kept of its last words.
	maxLine  = 256 << 10
	maxLines = 1024
	maxWords = 4 << 10
)

// Probe is the command line of a process that calls Examine, with a Selection added as arguments:
// --name NAME, --skip NAME, --plain NAME. The zero value finds nothing.
type Probe []string

// Run looks at the devices of all drivers, or at those with these names. What ends the process
// is told as the problem of what it looked at then; a device whose matrix units were tried then is
// looked at again without. The error is the context's, or says that the process could not be started.
func (p Probe) Run(ctx context.Context, names []string) (Report, error) {
	var all Report
	if len(p) == 0 || !HasDrivers() {
		return all, nil
	}
	s, tries := Selection{Names: names}, []ending{}
	for {
		end, err := p.once(ctx, &all, s)
		if err != nil || end.during == "" || end.during == over || slices.Contains(s.Skip, end.during) {
			all.unite()
			all.explain(tries)
			return all, err
		}
		if end.matrix && !slices.Contains(s.Plain, end.during) {
			s.Plain, tries = append(s.Plain, end.during), append(tries, end)
		} else {
			s.Skip = append(s.Skip, end.during)
			if strings.Contains(end.during, ":") {
				all.Devices = append(all.Devices, Finding{Name: end.during, Problem: end.why})
			} else {
				all.Missing = append(all.Missing, Missing{end.during, end.why, true})
			}
		}
		for _, f := range all.Devices {
			s.Skip = append(s.Skip, f.Name)
		}
	}
}

// ending is how a process ended before it was through: during which backend or device, whether it
// tried matrix units, and why.
type ending struct {
	during string
	matrix bool
	why    string
}

// explain tells of devices that work without matrix units what these did.
func (r *Report) explain(tries []ending) {
	for _, end := range tries {
		for i, f := range r.Devices {
			if f.Name == end.during && f.Plain {
				r.Devices[i].Products = fmt.Sprintf("vector units (with matrix units, %s)", end.why)
			}
		}
	}
}

// unite tells of cards that were found in several processes that they are the same.
func (r *Report) unite() {
	cards := map[string]string{}
	for i, f := range r.Devices {
		switch first := cards[f.PCI]; {
		case f.PCI == "" || !f.Passed:
		case first != "":
			r.Devices[i].Same = first
		default:
			cards[f.PCI] = f.Name
		}
	}
}

// once runs one process and adds what it tells.
func (p Probe) once(ctx context.Context, all *Report, s Selection) (ending, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(patience, func() { cancel(errSilent) })
	defer silent.Stop()
	var words lastWords
	args := slices.Clone(p[1:])
	for _, a := range []struct {
		flag  string
		names []string
	}{{"--name", s.Names}, {"--skip", s.Skip}, {"--plain", s.Plain}} {
		for _, n := range a.names {
			args = append(args, a.flag, n)
		}
	}
	cmd := exec.CommandContext(ctx, p[0], args...)
	cmd.Stderr, cmd.WaitDelay = &words, time.Second
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return ending{}, fmt.Errorf("devices: look at the drivers: %w", err)
	}
	end := listen(out, all, func() { silent.Reset(patience) })
	err = cmd.Wait()
	switch cause := context.Cause(ctx); {
	case err == nil:
		return ending{}, nil
	case errors.Is(cause, errSilent):
		end.why = cause.Error()
		return end, nil
	case cause != nil:
		return ending{}, fmt.Errorf("devices: look at the drivers: %w", cause)
	}
	end.why = fmt.Sprintf("the driver ended its process: %v%s", err, &words)
	return end, nil
}

var errSilent = fmt.Errorf("the driver was silent for %.0f min", patience.Minutes())

// listen adds the messages of a process to a report until its output ends, and says what was
// looked at last. Lines that are none are a driver's own.
func listen(out io.Reader, all *Report, heard func()) (end ending) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, maxLine)
	for range maxLines {
		if !lines.Scan() {
			break
		}
		heard()
		var m message
		fields := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		fields.DisallowUnknownFields()
		err := fields.Decode(&m)
		if err != nil || m.Begin == "" && (m.Device == nil || m.Device.Name == "") && m.Missing == nil {
			continue
		}
		if m.Begin != "" {
			end = ending{during: m.Begin, matrix: m.Matrix}
		}
		if m.Device != nil {
			all.Devices = append(all.Devices, *m.Device)
		}
		if m.Missing != nil && !slices.Contains(all.Missing, *m.Missing) {
			all.Missing = append(all.Missing, *m.Missing)
		}
	}
	_, _ = io.Copy(io.Discard, out) // what is too much
	return end
}

// lastWords keeps the beginning of what a process says before it ends.
type lastWords struct{ text []byte }

func (w *lastWords) Write(p []byte) (int, error) {
	w.text = append(w.text, p[:min(len(p), maxWords-len(w.text))]...)
	return len(p), nil
}

// String is the first line, which says what happened.
func (w *lastWords) String() string {
	first, _, _ := strings.Cut(strings.TrimSpace(string(w.text)), "\n")
	if first == "" {
		return ""
	}
	return ": " + first
}
