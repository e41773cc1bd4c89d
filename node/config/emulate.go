package config

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"pnode/planner/plan"
)

// Emulation is a file that makes a node look like another one (`--emulate`): its device, and
// what the packets that it sends meet on their way.
type Emulation struct {
	Device Device `yaml:"device"`
	// Link is towards every address that Links does not name.
	Link  LinkShape     `yaml:"link"`
	Links []AddressLink `yaml:"links"`
	// Seed decides losses and jitter.
	Seed uint64 `yaml:"seed"`
}

// Device describes how a node's device is made to look.
type Device struct {
	// Model is a name to show.
	Model string `yaml:"model"`
	// Compute is real, the default: every call is computed and takes the time that it has on
	// the emulated device; or none: nothing is computed, and losses mean nothing.
	Compute string `yaml:"compute"`
	// MatMul, Attention are speeds of products and of attention; Attention 0 is MatMul.
	MatMul    Speed `yaml:"matmul"`
	Attention Speed `yaml:"attention"`
	// MatMulBF16 is the speed of products of bf16, as matrix units have it; 0 is MatMul's.
	MatMulBF16 Speed `yaml:"matmul_bf16"`
	// MatMulF16 is that of products of f16.
	MatMulF16 Speed `yaml:"matmul_f16"`
	// Bandwidth of its memory.
	Bandwidth Rate  `yaml:"bandwidth"`
	Memory    Bytes `yaml:"memory"`
	// CallTime is what each kernel call takes besides its operations.
	CallTime Span `yaml:"call_time"`
	// Copies is the rate of copies between the node's memory and the device's own, each way, and
	// HostMemory what the node has for optimizer state; without them the device's is the node's.
	Copies     Rate  `yaml:"copies"`
	HostMemory Bytes `yaml:"host_memory"`
	// Slower are times from which on it computes more slowly; the last one counts whose time has come.
	Slower []Slower `yaml:"slower"`
}

// Slower has a device take Times as long as the figures of its file say, from After on since the node's start.
type Slower struct {
	After Moment `yaml:"after"`
	Times int    `yaml:"times"`
}

// MaxModelBytes bounds Device.Model.
const MaxModelBytes = 64

// maxSlower bounds how much slower a device gets.
const maxSlower = 1000

// The values of Device.Compute.
const (
	ComputeReal = "real"
	ComputeNone = "none"
)

// AddressLink is the link to one address.
type AddressLink struct {
	// To is the "ip:port" that the other node listens on.
	To string `yaml:"to"`
	// After is when it begins, since the node's start. Of several to one address the last one
	// counts whose time has come.
	After     Moment `yaml:"after"`
	LinkShape        // its keys are on one level with these
}

// Computes reports whether calls are computed.
func (d Device) Computes() bool { return d.Compute != ComputeNone }

// AttentionSpeed returns Attention, or its default.
func (d Device) AttentionSpeed() Speed {
	return cmp.Or(d.Attention, d.MatMul)
}

// Networked reports whether any link is other than perfect.
func (e Emulation) Networked() bool { return e.Link != LinkShape{} || len(e.Links) > 0 }

// LoadEmulation reads and checks an emulation file. The error wraps ErrInvalid.
func LoadEmulation(path string) (Emulation, error) {
	return load[Emulation](path, "emulation file")
}

// load reads and checks a file of a kind. The error wraps ErrInvalid.
func load[T interface{ validate() error }](path, what string) (file T, err error) {
	if _, err = readFile(path, what, &file); err != nil {
		return file, err
	}
	if err = file.validate(); err != nil {
		err = fmt.Errorf("%w: %s: %w", ErrInvalid, path, err)
	}
	return file, err
}

func (e Emulation) validate() error {
	if err := e.Device.validate(); err != nil {
		return fmt.Errorf("device.%w", err)
	}
	for i, l := range e.Links {
		if _, err := netip.ParseAddrPort(l.To); err != nil {
			return fmt.Errorf("links[%d].to is %q: want the ip:port that the other node listens on", i, l.To)
		}
	}
	return nil
}

func (d Device) validate() error {
	switch {
	case d.Model != "" && !plan.Printable(d.Model, MaxModelBytes):
		return fmt.Errorf("model is %.80q: want at most %d bytes of printable text", d.Model, MaxModelBytes)
	case d.Compute != "" && !slices.Contains([]string{ComputeReal, ComputeNone}, d.Compute):
		return fmt.Errorf("compute is %q: want %s or %s", d.Compute, ComputeReal, ComputeNone)
	case d.MatMul == 0:
		return errors.New("matmul is missing: want the speed of matrix products, such as 8.1TFLOP/s")
	case d.Bandwidth == 0:
		return errors.New("bandwidth is missing: want that of its memory, such as 320GB/s")
	case d.Memory == 0:
		return errors.New("memory is missing: want its size, such as 16GB")
	case d.CallTime < 0 || int64(d.CallTime) > plan.MaxCallNanos:
		return fmt.Errorf("call_time is %s: want 0 to %s", time.Duration(d.CallTime), time.Duration(plan.MaxCallNanos))
	case d.Copies == 0 && d.HostMemory > 0:
		return errors.New("copies is missing, which host_memory needs: want their rate each way, such as 12GB/s")
	case d.Copies > 0 && d.HostMemory == 0:
		return errors.New("host_memory is missing, which copies needs: want what the node has for optimizer state, such as 16GB")
	}
	for i, s := range d.Slower {
		if s.Times < 1 || s.Times > maxSlower {
			return fmt.Errorf("slower[%d].times is %d: want 1 to %d", i, s.Times, maxSlower)
		}
	}
	return nil
}

// fitEmulation reads the files that Cluster and Emulate name, and gives every device of a
// cluster a local node. The error wraps ErrInvalid.
func (c *Config) fitEmulation() error {
	if c.Emulate != "" {
		if c.Cluster != "" {
			return c.invalid("emulate", c.Emulate, "none with --cluster, which says what each node is to look like")
		}
		if c.Local > 0 {
			return c.invalid("emulate", c.Emulate, "none with local nodes: describe them in a file for --cluster")
		}
		_, err := LoadEmulation(c.Emulate)
		return err
	}
	if c.Cluster == "" {
		return nil
	}
	if c.Listen != "" {
		return c.invalid("listen", c.Listen, "none with --cluster: its nodes know each other by addresses of their own")
	}
	cluster, err := LoadCluster(c.Cluster)
	if err != nil {
		return err
	}
	nodes := len(cluster.Nodes())
	if c.Local != 0 && c.Local != nodes {
		return c.invalid("local", c.Local, fmt.Sprintf("%d, the number of devices in %s, or nothing", nodes, c.Cluster))
	}
	c.Local = nodes
	return nil
}
