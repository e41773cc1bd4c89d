package simulate

// Constants say how long the parts of an answer take. Each set has one source, which results name.
type Constants struct {
	Name, Source string
	// ReadyNanos passes from a machine's start until it can get a part.
	ReadyNanos int64
	// NoticedNanos passes until a loss is known, AgreedNanos until the others have agreed on what follows, LoadedNanos until
	// who takes over has its state in place, PlannedNanos until a plan is there.
	NoticedNanos, AgreedNanos, LoadedNanos, PlannedNanos int64
	// SavedNanos is how long it takes at least at a change of plan until the state can be read; else it is what SaveBytesPerS allows. With 0 it costs
	// no time beside the rest. SalvagedNanos passes until the others have agreed on who saves what of a plan that has ended. StoredNanos and DiskBytesPerS are the same of
	// a checkpoint that steps wait for, until it is on disks.
	SavedNanos, SaveBytesPerS, SalvagedNanos, StoredNanos, DiskBytesPerS int64
	// WholeStep charges a whole step where a step is given up, not the part of it that was done.
	WholeStep bool

	// Restart, in checkpoint-restart, is how long the start of all processes takes with the load; 0 has it computed from the
	// sizes of states. CheckpointSteps and CheckpointNanos are how often it saves and how long steps stop for it; 0 computes.
	RestartNanos, CheckpointNanos int64
	CheckpointSteps               int64
	// RedundantUseful is which share of a step redundant computation leaves, in thousandths; 0 computes it. FailoverNanos is
	// how long its fleet stops after a loss, RendezvousNanos more where two neighbours are lost; 0 computes.
	RedundantUseful, FailoverNanos, RendezvousNanos int64
	// MovesFree has state moved within the times above.
	MovesFree bool
}

// ConstantsSets lists the sets, the usual one first.
var ConstantsSets = []Constants{
	{
		Name: "measured",
		Source: "pnode's own times (docs/recovery.md): 0.66 s until a loss is noticed, 0.11 s to agree, 0.14 s to load, 0.16 s to plan, " +
			"0.9 s or 330 MB/s until the state of a pause can be read, and where no pause was asked for the pass under way and one more agreement before, 2.77 s or 228 MB/s until it is on a disk; state over the lines of the cluster",
		ReadyNanos: 45e9, NoticedNanos: 660e6, AgreedNanos: 110e6, LoadedNanos: 140e6, PlannedNanos: 160e6,
		SavedNanos: 900e6, SaveBytesPerS: 330e6, SalvagedNanos: 110e6, StoredNanos: 2770e6, DiskBytesPerS: 228e6,
	},
	{
		Name: "oobleck",
		Source: "Oobleck's simulator, BERT-large (SOSP 2023 artifact): 45 s until a machine is ready, 2 s for any new plan and a whole step for each loss; " +
			"checkpoints every 10 steps for 15.8 s, 76 s to restart; redundant computation leaves 19.71% of a step, stops for 76 s, and 30 s more where neighbours are lost",
		ReadyNanos: 45e9, AgreedNanos: 2e9, WholeStep: true, MovesFree: true,
		RestartNanos: 76e9, CheckpointNanos: 15_800e6, CheckpointSteps: 10,
		RedundantUseful: 197, FailoverNanos: 76e9, RendezvousNanos: 30e9,
	},
}
