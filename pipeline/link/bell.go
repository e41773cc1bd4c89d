package link

// bell wakes everybody who waits for a change of the state beside it. The zero value is
// ready; the mutex of that state guards it.
type broadcast struct{ ch chan struct{} }

// wait gives a channel that is closed by the next ring.
func (b *broadcast) wait() <-chan struct{} {
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}

func (b *broadcast) wake() {
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}
