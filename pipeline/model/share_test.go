package model

import "testing"

// TestSharesConsistOfPieces: whatever count up to the most, a share is a run of whole pieces, and all shares
// have each element once.
func TestSharesConsistOfPieces(t *testing.T) {
	for most := 1; most <= 60; most++ {
		n := Pieces(most)
		for count := 1; count <= most; count++ {
			for _, whole := range []Range{{0, 0}, {3, 4}, {5, 28}, {0, 1001}} {
				next, piece := whole.First, 0
				for i := range count {
					share := Share{Index: i, Count: count}
					own := share.Of(whole)
					if own.First != next {
						t.Fatalf("share %d of %d begins at %d, want %d", i, count, own.First, next)
					}
					for ; piece < n && share.Has(piece, n); piece++ {
						p := Share{Index: piece, Count: n}.Of(whole)
						if p.First != next {
							t.Fatalf("most %d: piece %d of %d begins at %d, want %d", most, piece, n, p.First, next)
						}
						next = p.End
					}
					if next != own.End {
						t.Fatalf("most %d: share %d of %d of %v ends at %d, its pieces at %d", most, i, count, whole, own.End, next)
					}
				}
				if next != whole.End || piece != n {
					t.Fatalf("%d shares of %v end at %d, with %d of %d pieces", count, whole, next, piece, n)
				}
			}
		}
	}
}
