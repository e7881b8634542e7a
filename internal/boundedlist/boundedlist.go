// Package boundedlist decodes lists in JSON that others have sent. The decoder of encoding/json makes of each "{}", which is
// three bytes, an element of whatever size it has in memory; here a list that is too long is refused before anything is made of it.
package boundedlist

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Decode is json.Unmarshal of data into a list of at most so many elements, which an error calls what.
func Decode[T any](data []byte, into *[]T, most int, what string) error {
	n := elements(data, most)
	if n > most {
		return fmt.Errorf("more than %d %s", most, what)
	}
	// A member that is there twice is decoded twice, and its last list counts: with the memory of the one before, but nothing
	// of its contents, over which Unmarshal would decode.
	list := slices.Grow((*into)[:0], n)
	clear(list[:cap(list)])
	*into = list
	return json.Unmarshal(data, into)
}

// elements returns how many elements a list has, but no more than most and one; an empty one may count as one. What is no list has none. The data is valid
// JSON, as the decoder gives it to an Unmarshaler: then commas that are in no element and no string are between elements.
func elements(data []byte, most int) (n int) {
	depth, quoted := 0, false
	for i := 0; i < len(data) && n <= most; i++ {
		switch c := data[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			if depth++; depth == 1 {
				n = 1
			}
		case c == ']' || c == '}':
			depth--
		case c == ',' && depth == 1:
			n++
		}
	}
	return n
}
