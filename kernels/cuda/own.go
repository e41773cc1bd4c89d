package cuda

import (
	"errors"

	"pnode/kernels/conform"
)

// OwnProducts has the package's own kernels multiply from now on, though cuBLASLt may be there: to
// compare the two. No queue may be open.
func (d *Device) OwnProducts() error {
	d.noBLAS = errors.New("as they were asked for")
	var err error
	if b := d.driver.blas; b != nil {
		d.driver.blas = nil
		err = d.driver.do(b.close)
	}
	return errors.Join(err, conform.SelfTest(d))
}
