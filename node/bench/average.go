package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"pnode/swarm/admission"
)

// AverageOptions say which sums to measure: every combination of peers, rates, latencies and losses.
type AverageOptions struct {
	Sides
	Megabytes int             // of gradients, in units of 1,000,000 bytes
	Peers     []int           // default 2 and 4
	Mbits     []int           // of each peer's line, each way; default 100
	Latencies []time.Duration // one way between two peers; default 0
	Losses    []float64       // percent of the packets between two peers; default 0
	Binary    string          // this program
}

func (o *AverageOptions) fill() error {
	o.Peers, o.Mbits = orElse(o.Peers, 2, 4), orElse(o.Mbits, 100)
	o.Latencies, o.Losses = orElse(o.Latencies, 0), orElse(o.Losses, 0)
	for _, loss := range o.Losses {
		if !(loss >= 0 && loss < 100) {
			return fmt.Errorf("--loss is %v: take 0 to less than 100", loss)
		}
	}
	return cmp.Or(o.Sides.fill(), checkRange("size", 1, 4000, o.Megabytes), checkRange("peers", 2, 16, o.Peers...),
		checkRange("mbit", 1, 10_000, o.Mbits...), checkRange("latency", 0, time.Second, o.Latencies...))
}

// AverageReport is the result of Averages.
type AverageReport struct {
	Peer string `json:"peer,omitempty"`
	// NoPeer says why there is no peer and how to get one.
	NoPeer string `json:"no_peer,omitempty"`
	// Control is how the kernel's TCP controls congestion, which the peer uses.
	Control string          `json:"congestion_control"`
	Rounds  int             `json:"rounds"`
	Results []AverageResult `json:"results"`
}

// AverageResult is one case. Times are medians in seconds, Ratio is the median over the rounds of the peer's time to this program's.
type AverageResult struct {
	Peers     int     `json:"peers"`
	Bytes     int     `json:"bytes"`
	Mbit      int     `json:"mbit"`
	LatencyMS float64 `json:"latency_ms"`
	Loss      float64 `json:"loss_percent"`
	// Limit is the time that the payload takes between the headers of IP and TCP, without latency and losses.
	Limit float64 `json:"limit_s"`
	// First is the time of the first sum, with connections that nothing was sent over.
	First      float64   `json:"first_s"`
	Seconds    float64   `json:"seconds"`
	Times      []float64 `json:"times"`
	PeerFirst  float64   `json:"peer_first_s,omitempty"`
	PeerTime   float64   `json:"peer_seconds,omitempty"`
	PeerTimes  []float64 `json:"peer_times,omitempty"`
	Ratio      float64   `json:"ratio,omitempty"`
	Transports string    `json:"transports"`
}

// averageMTU and averageHeaders are the bytes of a packet, and of these those of IPv4's and TCP's headers with timestamps.
const averageMTU, averageHeaders = 1500, 52

// limit returns the seconds that a peer's line is busy at least.
func (c AverageResult) limit() float64 {
	payload := float64(c.Mbit) * 1e6 / 8 * (averageMTU - averageHeaders) / averageMTU
	return 2 * float64(c.Peers-1) / float64(c.Peers) * float64(c.Bytes) / payload
}

// Averages measures how long replicas take to add gradients up over slow lines, beside PyTorch's all-reduce over Gloo where there is one.
func Averages(ctx context.Context, o AverageOptions) (r AverageReport, err error) {
	if err := o.fill(); err != nil {
		return r, fmt.Errorf("bench average: %w: %w", ErrOptions, err)
	}
	r.Rounds = o.Rounds
	for _, peers := range o.Peers {
		for _, mbit := range o.Mbits {
			for _, latency := range o.Latencies {
				for _, loss := range o.Losses {
					c := AverageResult{Peers: peers, Bytes: o.Megabytes * 1_000_000 / 4 * 4, Mbit: mbit, LatencyMS: milliseconds(latency), Loss: loss}
					name := fmt.Sprintf("%d peers, %d Mbit/s, %v one way, %v%% lost", peers, mbit, latency, loss)
					o.Progress(name)
					if err := r.measure(ctx, o, &c, latency); err != nil {
						return r, fmt.Errorf("bench average: %s: %w", name, err)
					}
					r.Results = append(r.Results, c)
				}
			}
		}
	}
	return r, nil
}

// HasRows reports whether something was measured.
func (r AverageReport) HasRows() bool { return len(r.Results) > 0 }

// measure makes the network of a case, starts both sides in it and lets them take turns.
func (r *AverageReport) measure(ctx context.Context, o AverageOptions, c *AverageResult, latency time.Duration) (err error) {
	folder, err := os.MkdirTemp("", "pnode-average-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	if _, err := admission.CreateOwner(folder); err != nil {
		return err
	}
	net, err := openLines(c.Peers, averageLine{bitsPerS: float64(c.Mbit) * 1e6, delay: latency / 2, loss: 1 - math.Sqrt(1-c.Loss/100)})
	if err != nil {
		return err
	}
	defer net.close()
	r.Control = net.control()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.Limit = c.limit()
	own := averageSide{name: "pnode", program: o.Binary, args: []string{"bench", "--worker"}}
	if err := own.start(ctx, net, c, func(t averageTask) any { t.Folder = folder; return task{Average: &t} }); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, own.close()) }()
	torch := averageSide{name: "PyTorch", program: o.Python, args: []string{"-c", torchAverageScript}, env: []string{"GLOO_SOCKET_IFNAME=wan"}}
	if err := torch.start(ctx, net, c, func(t averageTask) any { return t }); err != nil {
		_ = torch.close()
		r.NoPeer = fmt.Sprintf("%v; it needs a Python with PyTorch (PyPI: pip install torch), see --python", err)
	} else {
		defer torch.close()
		r.Peer = torch.peers[0].hello.Name
	}
	first := takeTurns(1, own.sum, torch.turn())
	if err := first[0].err; err != nil {
		return err
	}
	took := takeTurns(o.Rounds, own.sum, torch.turn())
	if err := took[0].err; err != nil {
		return err
	}
	c.First, c.Times = first[0].answers[0].Seconds, took[0].times()
	c.Seconds, c.Transports = median(took[0].times()), took[0].answers[o.Rounds-1].Note
	switch err := cmp.Or(first[1].err, took[1].err); {
	case err != nil:
		r.NoPeer = err.Error()
	case r.Peer != "":
		c.PeerFirst, c.PeerTimes = first[1].answers[0].Seconds, took[1].times()
		c.PeerTime, c.Ratio = median(took[1].times()), took[0].ratio(took[1])
	}
	return nil
}

// times returns the seconds of the rounds.
func (r result) times() (all []float64) {
	for _, a := range r.answers {
		all = append(all, a.Seconds)
	}
	return all
}

// averageTask is the work of one peer of a sum.
type averageTask struct {
	Rank int `json:"rank"`
	Size int `json:"size"`
	// Elements are of the gradient.
	Elements int `json:"elements"`
	// Address is of the first peer, and Bind this peer's own.
	Address string `json:"address"`
	// Folder has the run's owner, and there peers of this program say where they are.
	Folder string `json:"folder,omitempty"`
}

// averageRequest asks a peer to make a new gradient, or to add it up with those of the others.
type averageRequest struct {
	Prepare bool `json:"prepare"`
}

// averageSide is one program on all peers.
type averageSide struct {
	name, program string
	args, env     []string
	peers         []*peer
}

// start runs the program on every peer.
func (s *averageSide) start(ctx context.Context, net *lines, c *AverageResult, what func(averageTask) any) error {
	s.peers = make([]*peer, c.Peers)
	begin := func(i int) (err error) {
		t := averageTask{Rank: i, Size: c.Peers, Elements: c.Bytes / 4, Address: net.address(0)}
		s.peers[i], err = startPeerBy(ctx, func(cmd *exec.Cmd) error { return net.start(i, cmd) }, s.env, what(t), s.program, s.args...)
		return err
	}
	if err := begin(0); err != nil {
		return err
	}
	var others errgroup.Group
	for i := 1; i < c.Peers; i++ {
		others.Go(func() error { return begin(i) })
	}
	return others.Wait()
}

// turn returns the side's turn, nil where it did not start.
func (s *averageSide) turn() side {
	for _, p := range s.peers {
		if p == nil {
			return nil
		}
	}
	return s.sum
}

// sum has the peers add a gradient up. It takes as long as the slowest of them.
func (s *averageSide) sum() (answer, error) {
	if _, err := s.ask(averageRequest{Prepare: true}); err != nil {
		return answer{}, err
	}
	begin := time.Now()
	a, err := s.ask(averageRequest{})
	a.Seconds = time.Since(begin).Seconds()
	return a, err
}

// ask asks all peers at once and returns the first one's answer.
func (s *averageSide) ask(request averageRequest) (answer, error) {
	answers := make([]answer, len(s.peers))
	var all errgroup.Group
	for i, p := range s.peers {
		all.Go(func() (err error) {
			answers[i], err = p.ask(request)
			return err
		})
	}
	return answers[0], all.Wait()
}

func (s *averageSide) close() (err error) {
	for _, p := range s.peers {
		err = errors.Join(err, p.close())
	}
	return err
}

// Text returns the report as a table for people.
func (r AverageReport) Text() string {
	var w strings.Builder
	peer := ""
	if r.Peer != "" {
		peer = "; peer " + r.Peer + " over Gloo"
	}
	fmt.Fprintf(&w, "Sums of gradients over lines that this command makes, TCP with %s%s\n", r.Control, peer)
	fmt.Fprintf(&w, "Medians of %d rounds in which both sides take turns. The limit is what the payload takes between the\n"+
		"headers of IP and TCP; first are sums over new connections.\n\n", r.Rounds)
	t := tabwriter.NewWriter(&w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "peers\tMB\tMbit/s\tone way\tloss\tlimit s\tpnode s\tof limit\tfirst\tover\tGloo s\tof limit\tfirst\tratio\t")
	for _, c := range r.Results {
		fmt.Fprintf(t, "%d\t%d\t%d\t%v ms\t%v%%\t%.2f\t%.2f\t%.1f%%\t%.2f\t%s\t", c.Peers, c.Bytes/1_000_000, c.Mbit, c.LatencyMS, c.Loss,
			c.Limit, c.Seconds, 100*c.Limit/c.Seconds, c.First, c.Transports)
		if c.PeerTime > 0 {
			fmt.Fprintf(t, "%.2f\t%.1f%%\t%.2f\t%.3f\t\n", c.PeerTime, 100*c.Limit/c.PeerTime, c.PeerFirst, c.Ratio)
		} else {
			fmt.Fprintln(t, "-\t-\t-\t-\t")
		}
	}
	_ = t.Flush() // a Builder takes all
	if r.NoPeer != "" {
		fmt.Fprintf(&w, "\nNo PyTorch to compare with: %s\n", r.NoPeer)
	}
	return w.String()
}
