// Package emulate is a device of a given speed and memory that lives on another one: it
// stretches time instead of computing faster or slower, so that many different "GPUs" fit
// on a few cores.
//
// Nouns:
//
//   - Profile: FLOP/s of products and of attention, memory bandwidth, memory size, and of a
//     device with memory of its own the rate of copies.
//   - Device: wraps a kernels.Device. Over kernels/cpu every call is computed for real and
//     takes what the profile says, so that losses are those of the processor to the bit;
//     over kernels/null nothing is computed, and a large model costs time and no work.
//   - Clock: when the emulated device is done with all that was given to it.
//
// # Time
//
// A queue's calls are asynchronous as a GPU's are: each moves the device's clock on by what
// the profile says that it takes, and Sync waits, by one timer, until real time has come
// to the end of the queue's last call. The clock adds durations up and does not read the
// time when it wakes: a timer that is late, or a program that needs a moment between two
// calls, is made up for by the next wait, as long as the device lags by no more than
// Options.Slack. What the program waits for outside of the device, such as a message of
// another one, it tells by Waited; the calls that follow start no earlier.
//
// Copies between the host and a device with memory of its own take turns with those that go the
// same way, beside calls and copies the other way; other devices' take no time. What waits for
// another queue holds up nothing that can be done until then, as on cards with queues of their own.
//
// Where the wrapped device is slower than the profile, calls take what it takes.
//
// # Memory
//
// Alloc counts bytes and refuses what the profile's memory cannot hold with
// kernels.ErrOutOfMemory. What an arena or a rounding to pages adds on real devices is not
// emulated.
//
// Several devices in one process share nothing but the processor. node and node/bench
// call the package. It never imports a backend.
package emulate
