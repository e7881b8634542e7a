// Package printable makes texts of other processes and nodes fit for logs, tables and errors.
package printable

// maxName bounds a name.
const maxName = 64

// Text returns a name with a question mark for each byte that is not printable ASCII, cut to 64 bytes.
func Text(s string) string { return Limited(s, maxName) }

// Limited is Text for texts of at most the given number of bytes.
func Limited(s string, most int) string {
	b := []byte(s[:min(len(s), most)])
	for i, ch := range b {
		if ch < ' ' || ch > '~' {
			b[i] = '?'
		}
	}
	return string(b)
}
