// Package conform holds every backend to the same results: each op of the kernels table
// is run on given and on random shapes and compared with a naive float64 version.
//
// Nouns:
//
//   - Case: an op with dimensions, flags and scalars; operands come from the table.
//   - reference: the naive version of an op, and what its inputs must look like.
//   - Run: the suite, called by each backend's test.
//   - Late: a device that puts off what it may, for programs that have to wait for it.
//   - SelfTest: a few cases, in some milliseconds, for a device that starts: kernels that
//     fail are not used.
//
// A case passes when every output is within the table's tolerance, when inputs and the
// guard elements around all operands kept their bits, and when outputs, which start as
// NaN unless the op adds to them, have no NaN left. The package never imports a backend.
package conform
