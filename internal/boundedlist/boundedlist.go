// Package boundedlist decodes lists in JSON that others have sent. The decoder of encoding/json makes of each "{}", which is
// three bytes, an element of whatever size it has in memory; here a list that is too long is refused at the element that is one too
// many.
package boundedlist

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Decode is json.Unmarshal of data into a list of at most so many elements, which an error calls what. What the list had before is
// neither kept nor decoded over.
func Decode[T any](data []byte, into *[]T, most int, what string) error {
	d := json.NewDecoder(bytes.NewReader(data))
	if begin, err := d.Token(); err != nil || begin != json.Delim('[') {
		*into = nil
		return json.Unmarshal(data, into) // null, or an error
	}
	list := []T{}
	for d.More() {
		if len(list) == most {
			return fmt.Errorf("more than %d %s", most, what)
		}
		var e T
		if err := d.Decode(&e); err != nil {
			return err
		}
		list = append(list, e)
	}
	*into = list
	return nil
}
