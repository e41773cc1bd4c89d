package config

import "strings"

// didYouMean suggests the candidate that word was likely meant to be, or names them all.
func didYouMean(word string, candidates []string) string {
	if likely := Nearest(word, candidates); likely != "" {
		return `did you mean "` + likely + `"?`
	}
	return "want one of " + strings.Join(candidates, ", ")
}

// knownKeys suggests a key of a file; those of a run file are too many to name.
func knownKeys(word string, keys []string) string {
	const most = 20
	if len(keys) > most && Nearest(word, keys) == "" {
		return "`pnode train --print-config` lists all keys"
	}
	return didYouMean(word, keys)
}

// Nearest returns the candidate that word was likely meant to be, "" for none. It is the one with the smallest edit
// distance (Levenshtein), the first of equals: at most two slips or a third of the word, whichever is more.
func Nearest(word string, candidates []string) string {
	best, bestDistance := "", len(word)
	for _, c := range candidates {
		if d := distance(word, c); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	if best != "" && bestDistance <= max(2, len(word)/3) {
		return best
	}
	return ""
}

// distance counts the insertions, deletions and replacements of bytes from a to b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
