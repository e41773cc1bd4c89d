package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"pnode/node/api"
)

// Family is one metric: a gauge, or a counter since the process began.
type Family struct {
	// Name is without its prefix, which is Prefix.
	Name    string
	Counter bool
	Labels  []string
	Help    string
}

// Prefix opens the name of each metric.
const Prefix = "pnode_"

// Type returns the family's type as Prometheus names it.
func (f Family) Type() string {
	if f.Counter {
		return "counter"
	}
	return "gauge"
}

// Families lists every metric, in the order of docs/metrics.md.
var Families = []Family{
	{"info", false, []string{"run", "node", "version"}, "1, with the run, this node's name and the program's version as labels."},
	{"node_state", false, []string{"state"}, "1 for the state that this node is in."},

	{"step", false, nil, "Newest step of the run that counts."},
	{"last_step", false, nil, "Last step of the run."},
	{"loss", false, nil, "Training loss of the newest step, nats a token."},
	{"held_out_loss", false, nil, "Newest held-out loss, nats a token."},
	{"held_out_float32_loss", false, nil, "The same with every stage in float32, where some are not."},
	{"learning_rate", false, nil, "Learning rate of the newest step."},
	{"gradient_norm", false, nil, "Norm of the newest step's gradient before clipping."},
	{"tokens_per_second", false, nil, "Speed of the run; 0 while it waits."},
	{"tokens_per_step", false, nil, "Tokens of a step."},
	{"samples", false, nil, "Sequences that have entered the model by the log: of local steps those that outer steps count. pnode audit proves it."},
	{"step_seconds", false, nil, "What the newest steps took, measured."},
	{"step_predicted_seconds", false, nil, "What a step should take by the plan, simulated with the times that are seen."},
	{"eta_seconds", false, nil, "Expected time to the last step; 0: not known."},
	{"committed_steps_total", true, nil, "Steps of the run that this node has seen count, those that were done again too."},
	{"committed_tokens_total", true, nil, "Tokens of these steps."},

	{"waiting", false, nil, "1 while nothing moves."},
	{"waiting_for", false, []string{"kind"}, "1 for what the run, or this node, waits for."},
	{"members", false, []string{"state"}, "Members of the run by state; silent ones are those that this node does not hear."},
	{"members_unused", false, nil, "Members that plans do without for a while, for a fault."},

	{"generation", false, nil, "Generation of the plan; it grows with each plan."},
	{"plan_replicas", false, nil, "Replicas of the plan."},
	{"plan_stages", false, nil, "Stages of all replicas of the plan."},
	{"plan_codec_stages", false, []string{"codec"}, "Stages by the codec in which they send to the next one."},
	{"parameters", false, nil, "Parameters of the model."},
	{"stage_seconds", false, []string{"replica", "stage", "node", "part"}, "Where the newest step of a stage went: forward, backward, wait (for messages), update."},
	{"stage_codec_fallbacks", false, []string{"replica", "stage", "node"}, "Tensors of the newest step that a stage had to send in a better codec than the plan's."},
	{"stage_codec_error_ratio", false, []string{"replica", "stage", "node"}, "Largest relative error of a tensor that a stage sent in the newest step."},
	{"device_busy_seconds", false, []string{"node", "device", "model"}, "Part of the newest step for which a device computed."},
	{"device_exposed_wait_seconds", false, []string{"node", "device", "model"}, "Part of the newest step for which it stood still while a message was under way, by the simulation."},
	{"device_memory_bytes", false, []string{"node", "device", "model"}, "Memory that the plan takes on a device."},
	{"device_memory_free_bytes", false, []string{"node", "device", "model"}, "Memory that there was on it for the run."},
	{"device_temperature_celsius", false, []string{"node", "device"}, "Temperature of a device of this node, where its driver tells."},
	{"device_power_watts", false, []string{"node", "device"}, "Power that a device of this node takes, where its driver tells; a processor's is that of all its packages."},
	{"link_bytes_per_second", false, []string{"from", "to"}, "Rate of a direction between nodes whose stages follow each other."},
	{"link_round_trip_seconds", false, []string{"from", "to"}, "Round trip time there."},
	{"link_jitter_seconds", false, []string{"from", "to"}, "Mean deviation of the round trip time there."},

	{"sent_bytes_total", true, []string{"kind"}, "Payload that this node has sent to other nodes, by kind of message; chunk: of checkpoints and data."},
	{"received_bytes_total", true, []string{"kind"}, "Payload that has come from other nodes."},
	{"control_sent_bytes_total", true, []string{"kind"}, "Bytes that this node has sent on streams to other nodes to agree on the run, by kind: log, gossip, commits, alive, other."},
	{"control_sent_writes_total", true, []string{"kind"}, "Writes to these streams, mostly one a message."},
	{"control_received_bytes_total", true, []string{"kind"}, "Bytes that have come on such streams."},

	{"checkpoint_step", false, nil, "Step of the newest checkpoint; 0: there is none."},
	{"checkpoint_timestamp_seconds", false, nil, "When it was made, in seconds since 1970. Its age is time() less this."},
	{"checkpoint_bytes", false, nil, "Size of its layers, on whichever nodes they are."},
	{"checkpoint_copied_step", false, nil, "Step of the newest checkpoint of which each layer is on two machines, or as many as can have it; 0: there is none."},
	{"checkpoint_interval_seconds", false, nil, "Time from one checkpoint to the next, as it is planned."},
	{"checkpoint_save_seconds", false, nil, "How long the last one took in the background."},
	{"checkpoint_lost_seconds", false, nil, "What steps lose by one."},
	{"checkpoint_saving", false, nil, "1 while one is under way."},

	{"interruptions_total", true, []string{"rung"}, "Interruptions by what the steps went on from: substitute, pause, memory, replay, checkpoint."},
	{"interruption_seconds_total", true, []string{"rung", "part"}, "Time of these by part: detect, agree, replay, save, plan, load, step."},
	{"redone_steps_total", true, nil, "Steps that were done again after interruptions."},
	{"events_total", true, []string{"kind"}, "What happened, by kind."},

	{"raft_term", false, nil, "Term of the run's log; it grows with each election."},
	{"raft_voters", false, nil, "Nodes that vote on it."},
	{"raft_leader_known", false, nil, "1 while a leader is known."},
	{"raft_leader", false, nil, "1 while that is this node."},
	{"raft_leader_changes_total", true, nil, "How often another leader became known than the one before."},

	{"replica_step", false, []string{"replica", "node"}, "Newest inner step of a replica."},
	{"replica_loss", false, []string{"replica", "node"}, "Loss of that step over the replica's share, nats a token."},
	{"replica_round_steps_made", false, []string{"replica", "node"}, "Inner steps of the round that a replica has made."},
	{"replica_round_steps", false, []string{"replica", "node"}, "Inner steps that it makes in the round."},
	{"replica_tokens_per_second", false, []string{"replica", "node"}, "Speed of a replica's inner steps; 0: not known."},
	{"replica_state", false, []string{"replica", "node", "state"}, "1 for the state that a replica is in."},
	{"outer_step", false, nil, "Step of the newest outer step."},
	{"outer_drift", false, nil, "Distance of the replicas' outer gradients from their mean, as a part of its norm."},
	{"outer_bytes", false, nil, "Bytes of all messages between replicas in its round."},
	{"outer_sent_bytes", false, nil, "Bytes of these that this node has sent."},
	{"outer_bytes_per_token", false, nil, "Bytes of all messages for each token that counts."},
	{"outer_every_step_bytes_per_token", false, nil, "What sums of gradients in every step would send for each token."},
	{"outer_exchange_seconds", false, nil, "Time of messages, log and outer step that no replica computed in; 0: not known."},
	{"outer_waited_ratio", false, nil, "Part of the round for which replicas stood still; 0: not known."},
	{"outer_hidden_seconds", false, nil, "Time in which messages came while inner steps were made; 0: not known."},
	{"outer_replica_steps", false, []string{"replica"}, "Inner steps of a replica that counted; 0: it did not count."},
	{"outer_replica_norm", false, []string{"replica"}, "Norm of a replica's outer gradient."},
	{"outer_replica_cosine", false, []string{"replica"}, "Cosine between a replica's outer gradient and the mean of the others'."},
	{"outer_replica_waited_seconds", false, []string{"replica"}, "Time that a replica stood still in the round; 0: not known."},
	{"outer_replica_far", false, []string{"replica"}, "1 where a replica was far from the others."},
}

// export is a family as Prometheus' client has it.
type export struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

// exported holds the families by their names.
var exported = func() map[string]export {
	all := map[string]export{}
	for _, f := range Families {
		e := export{prometheus.NewDesc(Prefix+f.Name, f.Help, f.Labels, nil), prometheus.GaugeValue}
		if f.Counter {
			e.kind = prometheus.CounterValue
		}
		all[f.Name] = e
	}
	return all
}()

// Labels with values from closed lists.
var (
	nodeStates    = []string{"joining", "profiling", "waiting", "loading", "training", "draining", "stopped"}
	memberStates  = []string{"joining", "active", "draining", api.MemberSilent, "gone"}
	replicaStates = []string{api.ReplicaComputes, api.ReplicaEnded, api.ReplicaSilent, api.ReplicaLeftOut}
	rungs         = []api.Rung{api.RungSubstitute, api.RungPause, api.RungMemory, api.RungReplay, api.RungCheckpoint}
	eventKinds    = []api.Kind{
		api.KindPlan, api.KindSchedule, api.KindCheckpoint, api.KindOuter, api.KindMember, api.KindSubstitute, api.KindInterruption, api.KindRecovery, api.KindWarning, api.KindError,
	}
)

// counted reports whether events of a kind are counted.
func counted(k api.Kind) bool { return slices.Contains(eventKinds, k) }
