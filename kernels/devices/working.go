package devices

import (
	"errors"
	"fmt"

	"pnode/kernels"
)

// Working is the set without the devices that compute nothing any more, and says of each of
// these why. Those are not closed: their drivers are not to be trusted.
func (s *Set) Working() (working *Set, lost []string) {
	working = &Set{}
	for _, d := range s.Devices {
		if err := lives(d.Device); err != nil {
			lost = append(lost, fmt.Sprintf("goes on without %v: %v", d.Finding, err))
			continue
		}
		working.Devices = append(working.Devices, d)
	}
	return working, lost
}

// lives has a device write a number, which it may do without computing (package null).
func lives(d kernels.Device) error {
	buffer, err := d.Alloc(kernels.F32, 1)
	if err != nil {
		return err
	}
	defer buffer.Free()
	q, err := d.NewQueue()
	if err != nil {
		return err
	}
	q.Do(kernels.Fill(kernels.Whole(buffer), 1, 1))
	q.Read(make([]byte, kernels.F32.SizeBytes()), kernels.Whole(buffer))
	return errors.Join(q.Sync(), q.Close())
}
