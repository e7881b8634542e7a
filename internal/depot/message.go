package depot

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Version is that of what is kept: of the keys, and of the metadata under them. A core
// that finds another does not adopt it.
const Version = 2

const (
	// MaxKey is the longest key in bytes.
	MaxKey = 200
	// MaxMeta is the most bytes of metadata of an item.
	MaxMeta = 64 << 10
	// MaxFDs is the most descriptors of an item.
	MaxFDs = 4
	// maxMessage bounds a message: the metadata and what is around it.
	maxMessage = MaxMeta + 1024
)

// ErrInvalid is wrapped by the errors for keys, metadata and messages that are not
// what they should be.
var ErrInvalid = errors.New("depot: invalid")

// op says what a message is.
type op string

// Messages from the core.
const (
	// opPut keeps an item, in place of the one that had the key.
	opPut op = "put"
	// opMeta changes the metadata of an item.
	opMeta op = "meta"
	// opDrop ends the keeping of an item.
	opDrop op = "drop"
	// opReady says that the core has adopted what it was given, and serves.
	opReady op = "ready"
)

// Messages from the supervisor: an opPut for each item, then opEnd, and opNote at any
// time after that.
const (
	opEnd op = "end"
	// opNote tells the core something, in meta.
	opNote op = "note"
)

// message is what one packet carries, besides descriptors.
type message struct {
	Op   op              `json:"op"`
	Key  string          `json:"key,omitempty"`
	Meta json.RawMessage `json:"meta,omitempty"`
}

// CheckKey reports whether a key can be used: 1 to MaxKey printable ASCII characters
// other than blanks, ':' and '#', as systemd's store of descriptors wants its names.
func CheckKey(key string) error {
	if len(key) == 0 || len(key) > MaxKey {
		return fmt.Errorf("%w: a key of %d bytes, want 1 to %d", ErrInvalid, len(key), MaxKey)
	}
	for _, c := range []byte(key) {
		if c <= ' ' || c > '~' || c == ':' || c == '#' {
			return fmt.Errorf("%w: key %.80q", ErrInvalid, key)
		}
	}
	return nil
}

// check judges a message that comes with the given number of descriptors.
func (m *message) check(fds int) error {
	most, keyed := 0, true
	switch m.Op {
	case opPut:
		most = MaxFDs
	case opMeta, opDrop:
	case opReady, opEnd, opNote:
		keyed = false
	default:
		return fmt.Errorf("%w: a message %.20q", ErrInvalid, string(m.Op))
	}
	if fds > most {
		return fmt.Errorf("%w: %s with %d descriptors", ErrInvalid, m.Op, fds)
	}
	if len(m.Meta) > MaxMeta {
		return fmt.Errorf("%w: %s with %d bytes of metadata, at most %d", ErrInvalid, m.Op, len(m.Meta), MaxMeta)
	}
	if keyed {
		return CheckKey(m.Key)
	}
	return nil
}

// encode makes the bytes of a message with the given number of descriptors.
func (m *message) encode(fds int) ([]byte, error) {
	if err := m.check(fds); err != nil {
		return nil, err
	}
	data, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("%w: %s %s: %w", ErrInvalid, m.Op, m.Key, err)
	}
	if len(data) > maxMessage {
		return nil, fmt.Errorf("%w: %s of %d bytes, at most %d", ErrInvalid, m.Op, len(data), maxMessage)
	}
	return data, nil
}

// decode parses the bytes of a message that came with the given number of descriptors.
func decode(data []byte, fds int) (*message, error) {
	var m message
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err := m.check(fds); err != nil {
		return nil, err
	}
	return &m, nil
}
