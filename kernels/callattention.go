package kernels

// AttentionShape are the sizes of a self-attention: B sequences of T positions, H
// query heads that share K key-value heads (H a multiple of K), D channels a head.
type AttentionShape struct{ B, T, H, K, D int }

func (s AttentionShape) dims() Dims { return Dims{s.B, s.T, s.H, s.K, s.D} }

// AttentionForward computes causal softmax(QK'/sqrt(D))V. qkv is [B,T,(H+2K)*D] with
// all query heads first, then keys, then values; out is [B,T,H*D]; lse [B,H,T] is the
// log of the sum of exponentials, kept for the backward pass. starts [B,T] may be absent:
// the query at t attends the keys from starts[t] to t, with 0 <= starts[t] <= t (documents
// that do not see each other, sliding windows).
//
// qkv and out are both F32, both BF16 or both F16, the sums and lse are float32. From a half a device
// may round the probabilities to it as well before it multiplies them.
func AttentionForward(out, lse, qkv, starts View, s AttentionShape) Call {
	return Call{Op: OpAttentionForward, Args: [8]View{out, lse, qkv, starts}, Dims: s.dims()}
}

// AttentionBackward overwrites dqkv [B,T,(H+2K)*D]; delta [B,H,T] is scratch. dout, qkv and
// out are all F32 or all of one half, dqkv is either. From a half a device may round
// probabilities and the gradients of scores to it as well before it multiplies them.
func AttentionBackward(dqkv, delta, dout, qkv, out, lse, starts View, s AttentionShape) Call {
	return Call{Op: OpAttentionBackward, Args: [8]View{dqkv, delta, dout, qkv, out, lse, starts}, Dims: s.dims()}
}

// AttentionPartShape are the sizes of a pass over the queries [From, From+Queries) of each
// sequence of a self-attention.
type AttentionPartShape struct {
	AttentionShape
	From, Queries int
}

func (s AttentionPartShape) dims() Dims {
	return Dims{s.B, s.T, s.H, s.K, s.D, s.From, s.Queries}
}

// PartUnit returns the number that bounds of parts must be multiples of, but for the end of the sequence,
// for their passes to give together the very bits of a pass over all queries. Sums over queries
// that share a key-value head are made for whole chunks of them.
func (s AttentionShape) PartUnit() int {
	if s.H > s.K {
		return 256
	}
	return 32
}

// AttentionForwardPart is AttentionForward for some of the queries: it writes their rows of out
// and lse and reads no position behind them.
func AttentionForwardPart(out, lse, qkv, starts View, s AttentionPartShape) Call {
	return Call{Op: OpAttentionForwardPart, Args: [8]View{out, lse, qkv, starts}, Dims: s.dims()}
}

// AttentionBackwardPart is AttentionBackward for some of the queries, the last ones of the
// sequence first. It overwrites the gradients of the queries, and those of all keys and values
// up to the last query; with Accumulate, for all parts but the first to come, it adds to these.
// So the gradients of a part's own keys and values are complete with its pass. dqkv is F32, so
// that nothing is rounded between the parts.
func AttentionBackwardPart(dqkv, delta, dout, qkv, out, lse, starts View, s AttentionPartShape, flags Flags) Call {
	return Call{Op: OpAttentionBackwardPart, Flags: flags, Args: [8]View{dqkv, delta, dout, qkv, out, lse, starts}, Dims: s.dims()}
}

// CachedAttentionShape are the sizes of an attention over earlier keys and values: T new
// positions after Past earlier ones in a cache that has room for Max.
type CachedAttentionShape struct {
	AttentionShape
	Past, Max int
}

// AttentionCached writes the keys and values of qkv [B,T,(H+2K)*D] to positions
// [Past, Past+T) of cache [B,Max,2*K*D] (a row is all keys, then all values) and computes
// out [B,T,H*D], the attention of the T queries over the cache up to their own position.
// starts [B,T] may be absent; it counts positions of the cache.
func AttentionCached(out, cache, qkv, starts View, s CachedAttentionShape) Call {
	return Call{
		Op: OpAttentionCached, Args: [8]View{out, cache, qkv, starts},
		Dims: Dims{s.B, s.T, s.H, s.K, s.D, s.Past, s.Max},
	}
}

// RoPEShape are the sizes of a rotary embedding of Rows rows of Width channels: their first
// Heads*D channels are turned. Row n has position Start + n%T.
type RoPEShape struct{ Rows, T, Start, Heads, D, Width int }

// RoPE turns the pairs of channels (i, i+D/2) of each head of x [Rows,Width] by the angle
// whose cosine and sine are at [position,i] of cos and sin [>=Start+T,D/2] (Su et al. 2021,
// "RoFormer", section 3.2; the pairs are those of GPT-NeoX and of Hugging Face's Llama).
// Inverse turns back: the backward pass.
func RoPE(x, cos, sin View, s RoPEShape, flags Flags) Call {
	return Call{
		Op: OpRoPE, Flags: flags, Args: [8]View{x, cos, sin},
		Dims: Dims{s.Rows, s.T, s.Heads, s.D, s.Width, s.Start},
	}
}
