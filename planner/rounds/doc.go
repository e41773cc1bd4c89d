// Package rounds says how often replicas with local steps make an outer step, and in how many bits they send outer gradients
// (plan.Local), from how long that takes on their lines. Rare outer steps and few bits leave more time to inner steps, and cost loss:
// of what keeps inner steps waiting for a small part of the time, it takes the most frequent and the most exact (Douillard et al. 2023, "DiLoCo",
// arXiv 2311.08105, section 3.2; Sarfi et al. 2025, "SparseLoCo", arXiv 2508.15706, section 4).
//
// It also says with which replica's own state each replica of a plan begins.
//
// The package is pure, and counts in integers.
package rounds
