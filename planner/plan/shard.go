package plan

import (
	"fmt"
	"strings"
)

// ShardRule says whether the replicas hold the optimizer state of layers in parts, each
// replica one, for losses that are the same to the bit (ZeRO's first stage, Rajbhandari et al.
// 2020). A step's traffic is the same: in place of summed gradients the replicas exchange
// updated parameters. A checkpoint costs as much traffic as a step, to bring the parts
// together. The zero value lets the planner choose.
type ShardRule uint8

// The rules.
const (
	// ShardAuto shards the stages whose memory would keep a plan from fitting, or from the
	// step time that it has with the room.
	ShardAuto ShardRule = iota
	// ShardOn shards all layers where there are several replicas.
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
