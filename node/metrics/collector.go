package metrics

import (
	"cmp"
	"runtime/debug"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"pnode/node/api"
	"pnode/pipeline/link"
	"pnode/planner/plan"
	"pnode/swarm/traffic"
)

// Source says what a node knows. Its functions are called concurrently, once a scrape, and must not block on the network.
type Source struct {
	// Status is a snapshot, as the page gets it.
	Status func() api.Status
	// Voters returns how many nodes vote on the log, and how often another leader became known since the process began.
	Voters func() (n int, leaderChanges uint64)
	// Traffic returns the payload sent and received by kind, Control what agreeing on the run has sent and received.
	Traffic func() []link.Traffic
	Control func() []traffic.Count
}

// Describe lists all families.
func (e *Exporter) Describe(to chan<- *prometheus.Desc) {
	for _, f := range Families {
		to <- exported[f.Name].desc
	}
}

// Collect emits all that is known now. What is not known has no value.
func (e *Exporter) Collect(to chan<- prometheus.Metric) {
	s, out := e.source.Status().Shown(), &series{to: to, seen: map[string]bool{}}
	tokens := 0.0
	if s.About != nil {
		tokens = float64(s.About.TokensPerStep)
	}
	names := namesOf(s)
	out.identity(s, names)
	out.progress(s)
	e.counts.write(out, tokens)
	out.members(s)
	out.plan(s, names)
	out.checkpoint(s)
	e.log(out, s)
	out.replicas(s, names)
	out.outer(s.Outer)
}

// names holds what people call peers.
type names map[plan.PeerID]string

func namesOf(s api.Status) names {
	all := names{}
	for _, m := range s.Roster {
		all[m.Peer] = m.Name
	}
	return all
}

// of returns what people call a peer.
func (n names) of(p plan.PeerID) string {
	if name := n[p]; name != "" {
		return name
	}
	return p.Short()
}

// version returns the version that the program was built as.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

func (out *series) identity(s api.Status, n names) {
	out.add("info", 1, string(s.Run), n.of(s.Peer), version())
	for _, state := range nodeStates {
		out.flag("node_state", s.State == state, state)
	}
	out.flag("waiting", s.Waiting != "")
	for _, kind := range api.WaitKinds {
		out.flag("waiting_for", s.Waiting != "" && s.WaitingFor == kind, string(kind))
	}
}

func (out *series) progress(s api.Status) {
	out.add("step", float64(s.Step))
	out.add("last_step", float64(s.Steps))
	out.known("loss", s.Loss)
	out.known("held_out_loss", s.HeldOut)
	out.known("held_out_float32_loss", s.HeldOutF32)
	out.measured("learning_rate", s.LearningRate)
	out.known("gradient_norm", s.GradientNorm)
	out.add("tokens_per_second", s.TokensPerS)
	out.add("eta_seconds", s.ETAS)
	out.add("samples", float64(s.Samples))
	if a := s.About; a != nil {
		out.add("parameters", float64(a.Parameters))
		out.add("tokens_per_step", float64(a.TokensPerStep))
		out.measured("step_seconds", a.StepMS/1e3)
		out.measured("step_predicted_seconds", a.PredictedMS/1e3)
	}
}

func (out *series) members(s api.Status) {
	states, unused := map[string]int{}, 0
	for _, m := range s.Roster {
		states[m.State]++
		if m.NotUsed != "" {
			unused++
		}
	}
	for _, state := range memberStates {
		out.add("members", float64(states[state]), state)
	}
	out.add("members_unused", float64(unused))
}

// plan emits the plan, with where its newest step went.
func (out *series) plan(s api.Status, n names) {
	out.add("generation", float64(s.Generation))
	replicas, codecs := map[plan.Replica]bool{}, map[string]int{}
	for _, st := range s.Plan {
		replicas[st.Replica] = true
		if st.Codec != "" {
			codecs[st.Codec]++
		}
	}
	out.add("plan_replicas", float64(len(replicas)))
	out.add("plan_stages", float64(len(s.Plan)))
	for _, codec := range plan.CodecNames() {
		out.add("plan_codec_stages", float64(codecs[codec]), codec)
	}
	for _, st := range listed(s.Plan, func(st api.StageStatus) bool { return st.Peer == s.Peer }) {
		labels := []string{strconv.Itoa(int(st.Replica)), strconv.Itoa(int(st.Stage)), n.of(st.Peer)}
		for _, p := range []struct {
			name string
			ms   float64
		}{{"forward", st.ForwardMS}, {"backward", st.BackwardMS}, {"wait", st.WaitMS}, {"update", st.UpdateMS}} {
			out.add("stage_seconds", p.ms/1e3, labels[0], labels[1], labels[2], p.name)
		}
		out.add("stage_codec_fallbacks", float64(st.FellBack), labels...)
		out.add("stage_codec_error_ratio", st.RelError, labels...)
	}
	for _, seat := range listed(s.Seats, func(d api.SeatStatus) bool { return d.Peer == s.Peer }) {
		node, model := n.of(seat.Peer), cmp.Or(seat.Title, seat.Device)
		out.add("device_busy_seconds", seat.BusyMS/1e3, node, seat.Device, model)
		out.add("device_exposed_wait_seconds", seat.ExposedMS/1e3, node, seat.Device, model)
		out.add("device_memory_bytes", float64(seat.MemoryBytes), node, seat.Device, model)
		out.add("device_memory_free_bytes", float64(seat.FreeBytes), node, seat.Device, model)
	}
	for _, d := range listed(s.Sensors, func(api.Sensor) bool { return true }) {
		out.known("device_temperature_celsius", d.Celsius, n.of(s.Peer), d.Device)
		out.known("device_power_watts", d.Watts, n.of(s.Peer), d.Device)
	}
	for _, l := range listed(s.Links, func(l api.LinkStatus) bool { return l.From == s.Peer }) {
		from, to := n.of(l.From), n.of(l.To)
		out.measured("link_bytes_per_second", float64(l.BytesPerS), from, to)
		out.measured("link_round_trip_seconds", l.RTTMS/1e3, from, to)
		out.measured("link_jitter_seconds", l.JitterMS/1e3, from, to)
	}
}

// checkpoint emits the newest checkpoint, and how often one is made.
func (out *series) checkpoint(s api.Status) {
	c := s.Checkpoint
	out.add("checkpoint_step", float64(c.Step))
	if !c.Time.IsZero() {
		out.add("checkpoint_timestamp_seconds", float64(c.Time.UnixMilli())/1e3)
	}
	if c.Step > 0 {
		out.measured("checkpoint_bytes", float64(c.SizeBytes))
	}
	copied := c.Step
	if c.Copies != nil {
		copied = c.Copies.Step
	}
	out.add("checkpoint_copied_step", float64(copied))
	if cad := c.Cadence; cad != nil {
		out.measured("checkpoint_interval_seconds", cad.EveryS)
		out.measured("checkpoint_save_seconds", cad.TookS)
		out.measured("checkpoint_lost_seconds", cad.LostS)
	}
	out.flag("checkpoint_saving", c.Saving != nil)
}

// log emits the run's log, and the traffic.
func (e *Exporter) log(out *series, s api.Status) {
	voters, changes := e.source.Voters()
	out.add("raft_term", float64(s.Term))
	out.add("raft_voters", float64(voters))
	out.flag("raft_leader_known", s.Leader != "")
	out.flag("raft_leader", s.Leader != "" && s.Leader == s.Peer)
	out.add("raft_leader_changes_total", float64(changes))
	for _, t := range e.source.Traffic() {
		out.add("sent_bytes_total", float64(t.Sent), t.Kind)
		out.add("received_bytes_total", float64(t.Received), t.Kind)
	}
	for _, c := range e.source.Control() {
		out.add("control_sent_bytes_total", float64(c.SentBytes), c.Kind)
		out.add("control_sent_writes_total", float64(c.SentWrites), c.Kind)
		out.add("control_received_bytes_total", float64(c.ReceivedBytes), c.Kind)
	}
}

// replicas emits what replicas with local steps do.
func (out *series) replicas(s api.Status, n names) {
	for _, r := range listed(s.Replicas, func(r api.ReplicaStatus) bool { return r.Peer == s.Peer }) {
		replica, node := strconv.Itoa(int(r.Replica)), n.of(r.Peer)
		if r.Step > 0 {
			out.add("replica_step", float64(r.Step), replica, node)
			out.add("replica_loss", r.Loss, replica, node)
		}
		out.add("replica_round_steps_made", float64(r.Made), replica, node)
		out.add("replica_round_steps", float64(r.Of), replica, node)
		out.add("replica_tokens_per_second", r.TokensPerS, replica, node)
		for _, state := range replicaStates {
			out.flag("replica_state", r.State == state, replica, node, state)
		}
	}
}

// outer emits how the newest outer step was.
func (out *series) outer(o *api.OuterStep) {
	if o == nil {
		return
	}
	out.add("outer_step", float64(o.To))
	out.known("outer_drift", o.Drift)
	out.add("outer_bytes", float64(o.Bytes))
	out.add("outer_sent_bytes", float64(o.SentBytes))
	out.add("outer_bytes_per_token", o.BytesPerToken)
	out.add("outer_every_step_bytes_per_token", o.EveryStepBytesPerToken)
	out.add("outer_exchange_seconds", o.ExchangeS)
	out.add("outer_waited_ratio", o.WaitedShare)
	out.add("outer_hidden_seconds", o.HiddenS)
	for _, p := range listed(o.Replicas, func(api.OuterPart) bool { return false }) {
		replica := strconv.Itoa(int(p.Replica))
		out.add("outer_replica_steps", float64(p.Steps), replica)
		if p.Norm != nil && p.Cosine != nil {
			out.add("outer_replica_norm", *p.Norm, replica)
			out.add("outer_replica_cosine", *p.Cosine, replica)
		}
		out.add("outer_replica_waited_seconds", p.WaitedS, replica)
		out.flag("outer_replica_far", p.Far != "", replica)
	}
}
