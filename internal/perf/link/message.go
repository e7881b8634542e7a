package link

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/rdmad/rdmad/internal/printable"
)

const (
	// MaxMessage is the longest line in bytes.
	MaxMessage = 64 << 10
	maxKind    = 32
)

// Kinds that this package sends itself.
const (
	kindHello   = "hello"
	kindFailure = "failure"
	kindAlive   = "alive"
)

// message is a line, decoded as far as it is the same for all kinds.
type message struct {
	Kind string          `json:"kind"`
	Body json.RawMessage `json:"body,omitempty"`
}

// encode returns the line of a message, with its end.
func encode(kind string, body any) ([]byte, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("link: message %q: %w", kind, err)
	}
	line, err := json.Marshal(message{Kind: kind, Body: raw})
	if err != nil {
		return nil, fmt.Errorf("link: message %q: %w", kind, err)
	}
	if len(line)+1 > MaxMessage {
		return nil, fmt.Errorf("link: message %q of %d bytes: at most %d", kind, len(line)+1, MaxMessage)
	}
	return append(line, '\n'), nil
}

// decode is the inverse of encode, for a line without its end, but for control characters in texts, which terminals may take for
// commands: what the other side says of itself is printed. Errors are *ProtocolError.
func decode(line []byte) (message, error) {
	var m message
	if len(line)+1 > MaxMessage {
		return m, protocolError("a line of more than %d bytes", MaxMessage)
	}
	if err := Strict(printable.JSON(line), &m); err != nil {
		return message{}, protocolError("not a message: %v", err)
	}
	if !validKind(m.Kind) {
		return message{}, protocolError("a message of the kind %.40q", m.Kind)
	}
	return m, nil
}

// into decodes the body of a message.
func (m message) into(body any) error {
	if err := Strict(m.Body, body); err != nil {
		return protocolError("the body of a message %q: %v", m.Kind, err)
	}
	return nil
}

// Strict decodes one JSON value into v, which must know every key of it.
func Strict(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one value")
	}
	return nil
}

func validKind(kind string) bool {
	if kind == "" || len(kind) > maxKind {
		return false
	}
	for _, c := range []byte(kind) {
		if c < 'a' || c > 'z' {
			return false
		}
	}
	return true
}
