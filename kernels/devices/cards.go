package devices

// Card holds what a card of NVIDIA tells of itself; numbers that it does not tell are -1.
type Card struct {
	PCI        string
	Celsius    int
	Milliwatts int
}
