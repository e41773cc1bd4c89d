package api

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"pnode/planner/plan"
)

// metricsType is the media type of the text format of Prometheus, version 0.0.4.
const metricsType = "text/plain; version=0.0.4; charset=utf-8"

// metric is a family of gauges in that format.
type metric struct {
	name, help string
	samples    []sample
}

// sample is a value with its labels, which are written already.
type sample struct {
	labels string
	value  float64
}

// add adds a value with labels: names and values in turn.
func (m *metric) add(value float64, labels ...string) {
	var all []string
	for i := 0; i+1 < len(labels); i += 2 {
		all = append(all, fmt.Sprintf(`%s="%s"`, labels[i], escapeLabel.Replace(labels[i+1])))
	}
	m.samples = append(m.samples, sample{strings.Join(all, ","), value})
}

var escapeLabel = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// metrics is a list of families that grows.
type metrics []*metric

// of adds a family of gauges, whose values follow.
func (all *metrics) of(name, help string) *metric {
	m := &metric{name: "pnode_" + name, help: help}
	*all = append(*all, m)
	return m
}

// one adds a family of a single gauge.
func (all *metrics) one(name, help string, value float64) { all.of(name, help).add(value) }

// known adds a family of a single gauge where its value is known.
func (all *metrics) known(name, help string, value *float64) {
	if value != nil {
		all.one(name, help, *value)
	}
}

// WriteMetrics writes a status in the text format of Prometheus. What is not known has no value.
func WriteMetrics(w io.Writer, s Status) error {
	var all metrics
	all.one("step", "Newest step of the run that counts.", float64(s.Step))
	all.one("steps", "Last step of the run.", float64(s.Steps))
	all.one("generation", "Generation of the plan.", float64(s.Generation))
	all.known("loss", "Training loss of the newest step, nats a token.", s.Loss)
	all.known("held_out_loss", "Newest held-out loss, nats a token.", s.HeldOut)
	waiting := 0.0
	if s.Waiting != "" {
		waiting = 1
	}
	all.one("waiting", "1 while nothing moves, as the status says why.", waiting)
	all.one("tokens_per_second", "Speed of the run.", s.TokensPerS)
	all.one("eta_seconds", "Expected time to the last step; 0: unknown.", s.ETAS)
	all.one("checkpoint_step", "Step of the newest checkpoint.", float64(s.Checkpoint.Step))
	states := map[string]int{"joining": 0, "active": 0, "draining": 0, MemberSilent: 0, "gone": 0}
	for _, m := range s.Roster {
		states[m.State]++
	}
	members := all.of("members", "Members of the run by state.")
	for _, state := range []string{"joining", "active", "draining", MemberSilent, "gone"} {
		members.add(float64(states[state]), "state", state)
	}
	all.replicas(s)
	all.outer(s.Outer)
	var b strings.Builder
	for _, m := range all {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s gauge\n", m.name, m.help, m.name)
		for _, sample := range m.samples {
			b.WriteString(m.name)
			if sample.labels != "" {
				b.WriteString("{" + sample.labels + "}")
			}
			b.WriteString(" " + prometheusNumber(sample.value) + "\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// prometheusNumber writes a number as the format does.
func prometheusNumber(x float64) string {
	switch {
	case math.IsInf(x, 1):
		return "+Inf"
	case math.IsInf(x, -1):
		return "-Inf"
	}
	return strconv.FormatFloat(x, 'g', -1, 64)
}

// replicas adds what replicas with local steps do.
func (all *metrics) replicas(s Status) {
	if len(s.Replicas) == 0 {
		return
	}
	step := all.of("replica_step", "Newest inner step of a replica.")
	loss := all.of("replica_loss", "Loss of that step over the replica's share, nats a token.")
	made := all.of("replica_round_steps_made", "Inner steps of the round that a replica has made.")
	of := all.of("replica_round_steps", "Inner steps that it makes in the round.")
	speed := all.of("replica_tokens_per_second", "Speed of a replica's inner steps; 0: unknown.")
	state := all.of("replica_state", "1 for the state that a replica is in.")
	for _, r := range s.Replicas {
		labels := []string{"replica", replicaLabel(r.Replica), "node", nameOf(s, r.Peer)}
		if r.Step > 0 {
			step.add(float64(r.Step), labels...)
			loss.add(r.Loss, labels...)
		}
		made.add(float64(r.Made), labels...)
		of.add(float64(r.Of), labels...)
		speed.add(r.TokensPerS, labels...)
		for _, each := range []string{ReplicaComputes, ReplicaEnded, ReplicaSilent, ReplicaLeftOut} {
			is := 0.0
			if r.State == each {
				is = 1
			}
			state.add(is, append(labels, "state", each)...)
		}
	}
}

// outer adds how the newest outer step was.
func (all *metrics) outer(o *OuterStep) {
	if o == nil {
		return
	}
	all.one("outer_step", "Step of the newest outer step.", float64(o.To))
	all.known("outer_drift", "Distance of the replicas' outer gradients from their mean, as a part of its norm.", o.Drift)
	all.one("outer_bytes", "Bytes of all messages between replicas in its round.", float64(o.Bytes))
	all.one("outer_sent_bytes", "Bytes of these that this node has sent.", float64(o.SentBytes))
	all.one("outer_bytes_per_token", "Bytes of all messages for each token that counts.", o.BytesPerToken)
	all.one("outer_every_step_bytes_per_token", "What sums of gradients in every step would send for each token.", o.EveryStepBytesPerToken)
	all.one("outer_exchange_seconds", "Time of messages, log and outer step that no replica computed in; 0: unknown.", o.ExchangeS)
	all.one("outer_waited_ratio", "Part of the round for which replicas stood still; 0: unknown.", o.WaitedShare)
	all.one("outer_hidden_seconds", "Time in which messages came while inner steps were made; 0: unknown.", o.HiddenS)
	counted := all.of("outer_replica_steps", "Inner steps of a replica that counted; 0: it did not count.")
	norm := all.of("outer_replica_norm", "Norm of a replica's outer gradient.")
	cosine := all.of("outer_replica_cosine", "Cosine between a replica's outer gradient and the mean of the others'.")
	waited := all.of("outer_replica_waited_seconds", "Time that a replica stood still in the round; 0: unknown.")
	far := all.of("outer_replica_far", "1 where a replica was far from the others.")
	for _, p := range o.Replicas {
		label := []string{"replica", replicaLabel(p.Replica)}
		counted.add(float64(p.Steps), label...)
		if p.Norm != nil && p.Cosine != nil {
			norm.add(*p.Norm, label...)
			cosine.add(*p.Cosine, label...)
		}
		waited.add(p.WaitedS, label...)
		is := 0.0
		if p.Far != "" {
			is = 1
		}
		far.add(is, label...)
	}
}

func replicaLabel(r plan.Replica) string { return strconv.Itoa(int(r)) }

// nameOf returns what people call a peer.
func nameOf(s Status, p plan.PeerID) string {
	for _, m := range s.Roster {
		if m.Peer == p && m.Name != "" {
			return m.Name
		}
	}
	return p.Short()
}
