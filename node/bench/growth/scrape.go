package growth

import (
	"context"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"pnode/node/api"
	"pnode/node/config"
)

// scrape holds what a node has told of itself, by series.
type scrape map[string]float64

// parseScrape reads the text format of Prometheus, without comments and times.
func parseScrape(text string) scrape {
	s := scrape{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || line[0] == '#' {
			continue
		}
		if value, err := strconv.ParseFloat(line[at+1:], 64); err == nil {
			s[line[:at]] = value
		}
	}
	return s
}

// sum returns the sum of a family's series, whatever their labels are.
func (s scrape) sum(family string) (sum float64) {
	for name, value := range s {
		if base, _, _ := strings.Cut(name, "{"); base == family {
			sum += value
		}
	}
	return sum
}

// byKind returns the series of a family that has one label, the kind.
func (s scrape) byKind(family string) map[string]float64 {
	kinds := map[string]float64{}
	for name, value := range s {
		if rest, ok := strings.CutPrefix(name, family+`{kind="`); ok {
			kinds[strings.TrimSuffix(rest, `"}`)] = value
		}
	}
	return kinds
}

// Series that are read.
const (
	cpuSeries     = "process_cpu_seconds_total"
	memorySeries  = "process_resident_memory_bytes"
	leaderSeries  = "pnode_raft_leader"
	bytesSeries   = "pnode_control_sent_bytes_total"
	writesSeries  = "pnode_control_sent_writes_total"
	payloadSeries = "pnode_sent_bytes_total"
)

// scrapeAll asks all nodes of a run of local nodes, by number.
func scrapeAll(ctx context.Context, dir string, nodes int) ([]scrape, error) {
	all := make([]scrape, nodes)
	var asking errgroup.Group
	asking.SetLimit(8)
	for i := range all {
		asking.Go(func() error {
			client, err := api.Dial(ctx, config.NodeDir(dir, i))
			if err != nil {
				return err
			}
			defer client.Close()
			text, err := client.Metrics(ctx)
			all[i] = parseScrape(text)
			return err
		})
	}
	return all, asking.Wait()
}

// controlOf returns what nodes spent between two looks, so many seconds and steps apart.
func controlOf(before, after []scrape, seconds float64, steps int) *Control {
	c := &Control{Sent: map[string]Rate{}}
	nodes := float64(len(after))
	for i, now := range after {
		cpu := 1e3 * (now[cpuSeries] - before[i][cpuSeries]) / float64(steps)
		c.CPUMS += cpu / nodes
		if max(now[leaderSeries], before[i][leaderSeries]) == 1 {
			c.LeaderCPUMS = cpu
		}
		bytes := (now.sum(bytesSeries) - before[i].sum(bytesSeries)) / seconds
		c.BytesPerS += bytes / nodes
		c.MostBytesPerS = max(c.MostBytesPerS, bytes)
		c.WritesPerS += (now.sum(writesSeries) - before[i].sum(writesSeries)) / seconds / nodes
		c.DataBytes += (now.sum(payloadSeries) - before[i].sum(payloadSeries)) / float64(steps) / nodes
		earlier, writes, writesEarlier := before[i].byKind(bytesSeries), now.byKind(writesSeries), before[i].byKind(writesSeries)
		for kind, sent := range now.byKind(bytesSeries) {
			r := c.Sent[kind]
			r.BytesPerS += (sent - earlier[kind]) / seconds / nodes
			r.WritesPerS += (writes[kind] - writesEarlier[kind]) / seconds / nodes
			c.Sent[kind] = r
		}
	}
	return c
}
