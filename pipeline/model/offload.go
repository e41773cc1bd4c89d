package model

import "pnode/kernels"

// Offloaded optimizer state (ZeRO-Offload, Ren et al. 2021, but for where the update is computed)
// comes to the device piece by piece: the update is made there, by the same calls on the same
// elements, so that it has the bits that it has without.
const (
	// momentWindows are as many pieces as may be on their way at a time: one comes, one is
	// updated, one goes.
	momentWindows = 3
	// A window has room for maxWindow elements of each vector of state, of a small stage for
	// one part of windowParts of them.
	maxWindow   = 1 << 20
	windowParts = 16
)

// windowLen is the room of a window where a stage has so many elements of each vector of state.
func windowLen(elements int64) int64 {
	const aligned = arenaAlign / 4
	part := (elements + windowParts - 1) / windowParts
	return min((part+aligned-1)/aligned*aligned, maxWindow)
}

// WindowBytes returns the bytes of windows on a device where a stage has at most so many elements of
// each of its vectors of optimizer state in the host's memory.
func WindowBytes(vectors int, elements int64) int64 {
	return 4 * momentWindows * int64(vectors) * windowLen(elements)
}

// Offloaded reports whether Moment is in the host's memory, and Windows are there.
func (s *State) Offloaded() bool { return len(s.windows) > 0 }

// Windows returns places on the device for pieces of the optimizer state that the host has: by
// window and moment, views of the same length.
func (s *State) Windows() [][]kernels.View { return s.windows }

// takeWindows opens windows where there is state to bring; `tied` elements of it stand at both ends
// of a stack.
func (s *State) takeWindows(room *arena, tied int) {
	elements := int64(-tied)
	for l := s.cfg.First; l < s.cfg.End; l++ {
		elements += int64(Total(s.Owned(l, 0)))
	}
	if !s.cfg.Offload || s.cfg.Moments == 0 || elements == 0 {
		return
	}
	for range momentWindows {
		var window []kernels.View
		for range s.cfg.Moments {
			window = append(window, room.take(int(windowLen(elements))))
		}
		s.windows = append(s.windows, window)
	}
}
