package cuda

import (
	"time"
	"unsafe"
)

// fakeEvent is one recording of the fake's event.
type fakeEvent struct {
	stream uintptr
	came   bool
	at     time.Time
}

func createEvent(event *uintptr, flags uintptr) uintptr {
	return locked(eventCreate, func(f *fake) result {
		if flags != 1 {
			return f.refuse(invalidValue, "an event with flags %d", flags)
		}
		*event = f.handle()
		f.events[*event] = nil
		return success
	})
}

func destroyEvent(event uintptr) uintptr {
	return locked(eventDestroy, func(f *fake) result {
		if _, ok := f.events[event]; !ok {
			return f.refuse(invalidHandle, "no event %#x to destroy", event)
		}
		delete(f.events, event)
		return success
	})
}

func recordEvent(event, stream uintptr) uintptr {
	return locked(eventRecord, func(f *fake) result {
		before, ok := f.events[event]
		if !ok || before != nil && !before.came {
			return f.refuse(invalidHandle, "event %#x is recorded again before it came", event)
		}
		e := &fakeEvent{stream: stream}
		f.events[event] = e
		return f.enqueue(stream, func() error {
			e.came, e.at = true, time.Now()
			return nil
		})
	})
}

// recorded gives what an event stands for now.
func (f *fake) recorded(event uintptr) *fakeEvent {
	if f.events[event] == nil {
		f.refuse(invalidHandle, "event %#x was not recorded", event)
	}
	return f.events[event]
}

func awaitEvent(stream, event, flags uintptr) uintptr {
	return locked(streamWaitEvent, func(f *fake) result {
		e := f.recorded(event)
		if e == nil || flags != 0 {
			return invalidHandle
		}
		return f.enqueue(stream, func() error { return f.drain(e.stream, e).err(streamWaitEvent) })
	})
}

func reachEvent(event uintptr) uintptr {
	return locked(eventSynchronize, func(f *fake) result {
		e := f.recorded(event)
		if e == nil {
			return invalidHandle
		}
		return f.drain(e.stream, e)
	})
}

func elapsed(milliseconds *float32, from, to uintptr) uintptr {
	return locked(eventElapsedTime, func(f *fake) result {
		a, b := f.recorded(from), f.recorded(to)
		if a == nil || b == nil || !a.came || !b.came {
			return f.refuse(invalidHandle, "the time between %#x and %#x, which have not come", from, to)
		}
		return put(milliseconds, float32(b.at.Sub(a.at).Seconds()*1000))
	})
}

func peek(to *byte, from, bytes uintptr) uintptr {
	return locked(memcpyDtoH, func(f *fake) result {
		b, at, ok := f.at(from, bytes)
		if !ok {
			return invalidValue
		}
		if err := f.work.Read(unsafe.Slice(to, bytes), b.memory, at); err != nil {
			return f.refuse(unknownError, "%v", err)
		}
		return f.drain(0, nil)
	})
}
