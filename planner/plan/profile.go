package plan

import (
	"pnode/pipeline/model"
)

// Profile has what a node measured about itself. All numbers are integers, so that every
// architecture plans the same.
type Profile struct {
	Devices []DeviceProfile `json:"devices"`
	// DiskFreeBytes is the free space of the data folder's file system, with DiskReserveBytes of it.
	DiskFreeBytes int64 `json:"disk_free_bytes"`
	// Links are measured towards likely neighbours only.
	Links []LinkProfile `json:"links,omitempty"`
}

// DiskReserveBytes are the free bytes of a disk that checkpoints are not written to.
const DiskReserveBytes = 256 << 20

// DeviceProfile is one device's measured speed and memory.
type DeviceProfile struct {
	Name  string `json:"name"`
	Model string `json:"model"`
	// MatMulFLOPS, AttentionFLOPS are floating-point operations per second in float32: of matrix
	// products, and of attention, which runs at another speed.
	MatMulFLOPS    int64 `json:"matmul_flops"`
	AttentionFLOPS int64 `json:"attention_flops"`
	// MatMulBF16FLOPS counts them for products of BF16 operands; 0 where nobody measured them.
	MatMulBF16FLOPS int64 `json:"matmul_bf16_flops,omitzero"`
	// MatMulF16FLOPS counts them for F16 operands; 0 where nobody measured them.
	MatMulF16FLOPS int64 `json:"matmul_f16_flops,omitzero"`
	// MemoryBytesPerS is the streaming bandwidth that element-wise kernels reach.
	MemoryBytesPerS int64 `json:"memory_bytes_per_s"`
	// CallNanos is what a kernel call takes besides its operations: rates are those of large calls.
	CallNanos       int64 `json:"call_nanos,omitempty"`
	MemoryFreeBytes int64 `json:"memory_free_bytes"`
	// CopyBytesPerS is the rate of copies to the device's own memory while as much comes back; 0 where
	// its memory is the node's.
	CopyBytesPerS int64 `json:"copy_bytes_per_s,omitempty"`
	// HostFreeBytes is the node's memory for what stages keep off the device.
	HostFreeBytes int64 `json:"host_free_bytes,omitempty"`
}

// Products returns the rate of products in a storage; 0 where nobody measured it.
func (d DeviceProfile) Products(s model.Storage) int64 {
	switch s {
	case model.StorageBF16:
		return d.MatMulBF16FLOPS
	case model.StorageF16:
		return d.MatMulF16FLOPS
	default:
		return d.MatMulFLOPS
	}
}

// LinkProfile is one direction of a link to Peer.
type LinkProfile struct {
	Peer        PeerID `json:"peer"`
	RTTNanos    int64  `json:"rtt_nanos"`
	BytesPerS   int64  `json:"bytes_per_s"`
	JitterNanos int64  `json:"jitter_nanos"`
	// Transport is the one that this was measured over.
	Transport Transport `json:"transport,omitempty"`
}
