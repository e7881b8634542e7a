package config

// closest returns the name that a misspelt one most likely meant, or "" when
// none is near: at most two letters may differ, and at most half of them.
func closest(name string, names []string) string {
	best, near := "", min(2, len(name)/2)+1
	for _, n := range names {
		if d := distance(name, n); d < near {
			best, near = n, d
		}
	}
	return best
}

// distance is the Levenshtein distance in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			substitute := diagonal
			if a[i] != b[j] {
				substitute++
			}
			diagonal = row[j+1]
			row[j+1] = min(substitute, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
