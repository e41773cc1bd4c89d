package api

import "fmt"

// PrecisionText says beside a held-out loss what it is in float32 throughout, and so what lower
// precision costs: stages that do not compute in float32, and boundaries between stages that
// tensors do not cross in it. It is empty where one of the two losses is nil.
func PrecisionText(heldOut, f32 *float64, digits int) string {
	if heldOut == nil || f32 == nil {
		return ""
	}
	return fmt.Sprintf("float32 throughout: %.*f, lower precision costs %+.2g", digits, *f32, *heldOut-*f32)
}
