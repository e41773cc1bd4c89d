package dataset

// DocumentStarts tells where in its row the document of each of the tokens [B,T] begins,
// for attention that is to stay within documents; all begin at 0 where the stream has no
// end-of-text token.
func (d *Dataset) DocumentStarts(tokens []int32) []int32 {
	return DocumentStarts(tokens, d.window.Context, d.spec.EndOfText())
}

// DocumentStarts tells, for tokens [B,T] flat, where in its row the document of each
// position begins, [B,T]: behind the last end-of-text token before the position, or at 0.
// Attention that is to stay within documents looks at positions [start, t] only. The
// end-of-text token belongs to the document that it ends.
func DocumentStarts(tokens []int32, context int, endOfText int32) []int32 {
	starts := make([]int32, len(tokens))
	begin := int32(0)
	for i, token := range tokens {
		t := int32(i % context)
		if t == 0 {
			begin = 0
		}
		starts[i] = begin
		if token == endOfText {
			begin = t + 1
		}
	}
	return starts
}
