package decoding

import (
	"fmt"
	"slices"
	"strings"

	"pnode/pipeline/model"
)

// Precision is how a task's weights are stored.
type Precision model.Storage

// Precisions are all that there are.
var Precisions = []Precision{Precision(model.StorageF32), Precision(model.StorageBF16), Precision(model.StorageInt8)}

// PrecisionNames returns their names, in this order.
func PrecisionNames() (names []string) {
	for _, p := range Precisions {
		names = append(names, p.String())
	}
	return names
}

func (p Precision) String() string { return model.Storage(p).String() }

// MarshalText returns the name.
func (p Precision) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads a name.
func (p *Precision) UnmarshalText(text []byte) error {
	i := slices.Index(PrecisionNames(), string(text))
	if i < 0 {
		return fmt.Errorf("decoding: storage is %.20q: want one of %s", text, strings.Join(PrecisionNames(), ", "))
	}
	*p = Precisions[i]
	return nil
}
