package wire_test

import (
	"fmt"

	"pnode/pipeline/wire"
)

// A tensor crosses a link as one byte an element where that is exact enough; the tensor names the codec.
func ExampleAppendTensor() {
	activations := []float32{0.5, -0.25, 1, 0} // two tokens of two
	tensor, used := wire.AppendTensor(nil, wire.BF16, activations, 2, 0)

	received := make([]float32, len(activations))
	codec, err := wire.DecodeTensor(received, 2, tensor)
	fmt.Println(used.Codec, used.RelError, codec, err, received)
	// Output:
	// bf16 0 bf16 <nil> [0.5 -0.25 1 0]
}

// A frame is a header with a checksum, and its payload. A changed byte is refused.
func ExampleAppendHeader() {
	frame := wire.Frame{
		Tag:     wire.Tag{Kind: wire.Activation, Generation: 2, Step: 100, Stage: 1, Index: 3},
		Payload: wire.AppendF32(nil, []float32{1, 2, 3}),
	}
	header, err := wire.DecodeHeader(wire.AppendHeader(nil, frame), 1<<20)
	fmt.Println(header.Tag, err)
	fmt.Println(header.Verify(frame.Payload))
	frame.Payload[0] ^= 1
	fmt.Println(header.Verify(frame.Payload))
	// Output:
	// activation generation 2 step 100 replica 0 stage 1 index 3 <nil>
	// <nil>
	// wire: checksum does not match: activation generation 2 step 100 replica 0 stage 1 index 3 has 0x51f828e6, header says 0x6089fcd6
}
