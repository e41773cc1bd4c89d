package partition

import "cmp"

// Apportion divides layers by weights, one at least for each of at most as many, the largest remainders first. Weights are below 2^38 where
// there are 4,096 of either.
func Apportion(layers int, weights []int64) []int {
	sum := int64(0)
	for _, w := range weights {
		sum += w
	}
	out, left := make([]int, len(weights)), layers
	for i, w := range weights {
		out[i] = max(1, int(int64(layers)*w/sum))
		left -= out[i]
	}
	for ; left != 0; left -= sign(left) {
		best := -1
		for i, w := range weights { // who is furthest from its part
			if left < 0 && out[i] == 1 {
				continue
			}
			if best < 0 || int64(sign(left))*(w*int64(layers)-int64(out[i])*sum) > int64(sign(left))*(weights[best]*int64(layers)-int64(out[best])*sum) {
				best = i
			}
		}
		out[best] += sign(left)
	}
	return out
}

func sign(n int) int { return cmp.Compare(n, 0) }
