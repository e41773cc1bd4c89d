package schedule

// Replica counts the copies of the model in a plan, from 0.
type Replica int

// Stage counts the contiguous layer ranges of one replica, from 0 (holds the embedding).
type Stage int

// Micro counts the micro-batches of one step within the whole run (all replicas), from 0.
type Micro int
