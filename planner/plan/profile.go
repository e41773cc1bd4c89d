package plan

import (
	"math/bits"

	"pnode/kernels"
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
	// Kind is of a processor, as amd64/avx512bf16 (kernels.Kinded): those of one kind compute the same bits. Cards and
	// emulated devices have none.
	Kind string `json:"kind,omitempty"`
	// MatMulFLOPS, AttentionFLOPS are floating-point operations per second in float32: of matrix
	// products, and of attention, which runs at another speed.
	MatMulFLOPS    int64 `json:"matmul_flops"`
	AttentionFLOPS int64 `json:"attention_flops"`
	// MatMulBF16FLOPS counts them for products of BF16 operands; 0 where nobody measured them, as on processors without
	// instructions for them.
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
	// Times are those of calls of several sizes in float32, TimesBF16 and TimesF16 of products and attention in halves;
	// zero where nobody measured them: plans count with the rates then.
	Times     kernels.WorkTimes `json:"times,omitzero"`
	TimesBF16 kernels.WorkTimes `json:"times_bf16,omitzero"`
	TimesF16  kernels.WorkTimes `json:"times_f16,omitzero"`
}

// Processor reports whether the device is a processor that was measured.
func (d DeviceProfile) Processor() bool { return d.Kind != "" }

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

// TimesIn returns the times of calls on operands in a storage: in halves, of works that were not measured in them, those
// of float32. No product is faster than the rate of products in the storage, which is what is known of who claims it.
func (d DeviceProfile) TimesIn(s model.Storage) kernels.WorkTimes {
	times, halves := d.Times, kernels.WorkTimes{}
	switch s {
	case model.StorageBF16:
		halves = d.TimesBF16
	case model.StorageF16:
		halves = d.TimesF16
	}
	for w := kernels.WorkProducts; w <= kernels.WorkCopy; w++ {
		if half := *halves.Of(w); half.Measured() {
			*times.Of(w) = half
		}
	}
	rate := d.Products(s)
	if rate == 0 {
		rate = d.MatMulFLOPS
	}
	if products := &times.Products; products.Measured() {
		for i, size := range kernels.WorkProducts.Sizes() {
			products[i] = max(products[i], min(scale(size, 1e9, max(rate, 1)), MaxWorkNanos))
		}
	}
	return times
}

// Stretched returns the profile with times that are by/of times as long. Rates stay.
func (d DeviceProfile) Stretched(by, of int64) DeviceProfile {
	for _, times := range []*kernels.WorkTimes{&d.Times, &d.TimesBF16, &d.TimesF16} {
		for w := kernels.WorkProducts; w < kernels.WorkCopy; w++ {
			for i, t := range times.Of(w) {
				times.Of(w)[i] = min(scale(t, by, max(of, 1)), MaxWorkNanos)
			}
		}
	}
	return d
}

// scale returns a*by/of, rounded down, or MaxWorkNanos where that does not fit 63 bits.
func scale(a, by, of int64) int64 {
	high, low := bits.Mul64(uint64(a), uint64(by))
	if high >= uint64(of) {
		return MaxWorkNanos
	}
	n, _ := bits.Div64(high, low, uint64(of))
	return int64(min(n, uint64(MaxWorkNanos)))
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
