package otelx

import (
	"encoding/binary"
	"slices"

	"github.com/rdmad/rdmad/client"
)

// What goes with a request is one byte, the version of this encoding, and then for each
// header of the propagator the sizes of its name (1 byte) and its value (2 bytes, little
// endian), and both. The order is that in which the propagator has set them.
const (
	carrierVersion = 1
	entrySize      = 3
	// maxEntries is how many headers are read.
	maxEntries = 32
)

// carrier holds what a propagator sets; it is a propagation.TextMapCarrier.
type carrier struct{ entries []entry }

type entry struct{ key, value string }

// Get implements propagation.TextMapCarrier.
func (c *carrier) Get(key string) string {
	for _, e := range c.entries {
		if e.key == key {
			return e.value
		}
	}
	return ""
}

// Set implements propagation.TextMapCarrier.
func (c *carrier) Set(key, value string) {
	for i := range c.entries {
		if c.entries[i].key == key {
			c.entries[i].value = value
			return
		}
	}
	c.entries = append(c.entries, entry{key, value})
}

// Keys implements propagation.TextMapCarrier.
func (c *carrier) Keys() []string {
	keys := make([]string, 0, len(c.entries))
	for _, e := range c.entries {
		keys = append(keys, e.key)
	}
	return keys
}

// encode returns what goes with a request, nil if that is nothing. What does not fit is
// left out, the largest value first: a W3C tracestate may be dropped, and is larger than
// a traceparent.
func (c *carrier) encode() []byte {
	list := slices.Clone(c.entries)
	list = slices.DeleteFunc(list, func(e entry) bool { return e.key == "" || len(e.key) > 255 || len(e.value) > client.MaxCarried })
	for len(list) > maxEntries || size(list) > client.MaxCarried {
		largest := 0
		for i := range list {
			if len(list[i].value) > len(list[largest].value) {
				largest = i
			}
		}
		list = slices.Delete(list, largest, largest+1)
	}
	if len(list) == 0 {
		return nil
	}
	b := append(make([]byte, 0, size(list)), carrierVersion)
	for _, e := range list {
		b = append(b, byte(len(e.key)))
		b = binary.LittleEndian.AppendUint16(b, uint16(len(e.value)))
		b = append(append(b, e.key...), e.value...)
	}
	return b
}

// size returns how many bytes encode makes of a list.
func size(list []entry) int {
	n := 1
	for _, e := range list {
		n += entrySize + len(e.key) + len(e.value)
	}
	return n
}

// decode reads what goes with a request, which anybody may have written. What is not as
// encode writes it is taken for nothing.
func decode(b []byte) *carrier {
	c := &carrier{}
	if len(b) == 0 || b[0] != carrierVersion {
		return c
	}
	for b = b[1:]; len(b) > 0; {
		if len(b) < entrySize || len(c.entries) == maxEntries {
			return &carrier{}
		}
		k, v := int(b[0]), int(binary.LittleEndian.Uint16(b[1:]))
		if b = b[entrySize:]; k == 0 || k+v > len(b) {
			return &carrier{}
		}
		c.entries = append(c.entries, entry{string(b[:k]), string(b[k : k+v])})
		b = b[k+v:]
	}
	return c
}
