package planner

import "pnode/planner/elastic"

// widen takes the most exact codecs that hide messages as well for a candidate.
func (c *cluster) widen(k *candidate) error {
	widest, narrowest := c.in.Run.CodecBounds()
	if widest == narrowest {
		return nil
	}
	var err error
	if k.layout != nil {
		err = c.site.Widen(k.layout, widest, narrowest)
	} else {
		err = k.widenPipes()
	}
	if err == nil {
		err = c.estimate(k)
	}
	if err != nil {
		return err
	}
	return k.simulate()
}

// widenPipes is that of a candidate without a layout.
func (k *candidate) widenPipes() (err error) {
	for i, p := range k.pipes {
		wide := *p
		if wide.Decision, err = elastic.Widen(p.problem, p.Decision); err != nil {
			return err
		}
		k.pipes[i] = &wide
	}
	return nil
}
