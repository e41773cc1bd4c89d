package planner

import (
	"fmt"
	"strings"
)

// ShardRule says whether the replicas hold the optimizer state of their layers in parts, each
// replica one, for losses that are the same to the bit (ZeRO's first stage, Rajbhandari et al.
// 2020). A step's traffic is the same: in place of summed gradients the replicas exchange
// updated parameters. A checkpoint costs as much traffic as a step, to bring the parts
// together. The zero value lets the planner choose.
type ShardRule uint8

// The rules.
const (
	// ShardAuto shards where memory would keep a plan from fitting, or from the step time
	// that it has with the room.
	ShardAuto ShardRule = iota
	// ShardOn shards wherever there are several replicas.
	ShardOn
	// ShardOff has every replica hold all.
	ShardOff
	shardRules
)

var shardNames = [shardRules]string{"auto", "on", "off"}

func (r ShardRule) String() string {
	if r >= shardRules {
		return "invalid"
	}
	return shardNames[r]
}

// ShardRules are the texts of all rules, the default first.
func ShardRules() []string { return shardNames[:] }

// ParseShard reads a rule; the error wraps ErrBadInput.
func ParseShard(text string) (ShardRule, error) {
	for i, name := range shardNames {
		if name == text {
			return ShardRule(i), nil
		}
	}
	return 0, fmt.Errorf("%w: shard is %q: take one of %s", ErrBadInput, text, strings.Join(shardNames[:], ", "))
}

// MarshalText is the rule's text.
func (r ShardRule) MarshalText() ([]byte, error) {
	if r >= shardRules {
		return nil, fmt.Errorf("%w: shard is %d: take a rule from %d to %d", ErrBadInput, uint8(r), ShardAuto, shardRules-1)
	}
	return []byte(r.String()), nil
}

// UnmarshalText reads a rule's text.
func (r *ShardRule) UnmarshalText(text []byte) (err error) {
	*r, err = ParseShard(string(text))
	return err
}

// momentVectors is how many of the trainingBytes hold the optimizer's state.
const momentVectors = 2

// momentBytes is what a stage holds at most of one layer's moments, alignment included, given
// the bytes of what it trains.
func (c *cluster) momentBytes(trained int64) int64 {
	if c.shares <= 1 || trained == 0 {
		return momentVectors * trained
	}
	const aligned = 64
	return momentVectors * (trained/int64(c.shares) + 2*aligned)
}

// freed is what a stage of layers [first,end) does not hold of their moments.
func (c *cluster) freed(first, end int) (bytes int64) {
	for _, k := range c.in.Costs[first:end] {
		trained := k.ParamBytes - k.FrozenBytes
		bytes += max(0, momentVectors*trained-c.momentBytes(trained))
	}
	return bytes
}

// sharing is the cluster in which so many replicas hold the optimizer state in parts.
func (c *cluster) sharing(replicas int) *cluster {
	if replicas <= 1 || c.shares == replicas {
		return c
	}
	if c.sharers[replicas] == nil {
		other := *c
		other.shares = replicas
		other.sumFixed()
		c.sharers[replicas] = &other
	}
	return c.sharers[replicas]
}

// under is the cluster with the sharding of a plan.
func (c *cluster) under(p Plan) *cluster {
	if !p.Sharded {
		return c
	}
	return c.sharing(len(p.Replicas))
}

// of is the cluster with the sharding of a candidate.
func (c *cluster) of(k *candidate) *cluster {
	if !k.sharded {
		return c
	}
	return c.sharing(c.copies(k.shape))
}

// copies is how many replicas a shape has.
func (c *cluster) copies(s shape) int { return s.replicas * c.order.copies }

// arrange makes a candidate of units in order. Where the rule leaves it open the replicas
// hold their optimizer state in parts if that brings what memory keeps the whole from: to fit
// at all, or a shorter step with more in flight, other cuts or less recomputed.
func (c *cluster) arrange(s shape, order []int) (*candidate, error) {
	rule, n := c.in.Run.Train.Shard, c.copies(s)
	if n > 1 && rule == ShardOn {
		return c.sharing(n).arrangeAs(s, order)
	}
	whole, err := c.arrangeAs(s, order)
	if n == 1 || rule == ShardOff || err == nil && !whole.tight() && !whole.recomputes() {
		return whole, err
	}
	parts, fail := c.sharing(n).arrangeAs(s, order)
	if fail != nil || err == nil && parts.estimate >= whole.estimate {
		return whole, err
	}
	return parts, nil
}

// roomiestFor is the cluster in which a shape takes the least memory.
func (c *cluster) roomiestFor(s shape) *cluster {
	if c.in.Run.Train.Shard == ShardOff {
		return c
	}
	return c.sharing(c.copies(s))
}
