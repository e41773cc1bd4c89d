package planner

// Profile is what a node measured about itself. All numbers are integers, so that every
// architecture plans the same.
type Profile struct {
	Devices []DeviceProfile `json:"devices"`
	// DiskFreeBytes is what the data folder's file system had free.
	DiskFreeBytes int64 `json:"disk_free_bytes"`
	// Links are measured towards likely neighbours only.
	Links []LinkProfile `json:"links,omitempty"`
}

// DeviceProfile is one device's measured speed and memory.
type DeviceProfile struct {
	Name  string `json:"name"`
	Model string `json:"model"`
	// MatMulFLOPS, AttentionFLOPS are floating-point operations per second in float32.
	MatMulFLOPS    int64 `json:"matmul_flops"`
	AttentionFLOPS int64 `json:"attention_flops"`
	// MemoryBytesPerS is the streaming bandwidth that element-wise kernels reach.
	MemoryBytesPerS int64 `json:"memory_bytes_per_s"`
	MemoryFreeBytes int64 `json:"memory_free_bytes"`
}

// LinkProfile is one direction of a link to Peer.
type LinkProfile struct {
	Peer        PeerID `json:"peer"`
	RTTNanos    int64  `json:"rtt_nanos"`
	BytesPerS   int64  `json:"bytes_per_s"`
	JitterNanos int64  `json:"jitter_nanos"`
}
