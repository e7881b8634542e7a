package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/client"
)

// endless has as many bytes as anybody wants, and says so when that is too many.
type endless struct{ read, most int }

func (e *endless) Read(p []byte) (int, error) {
	if e.read += len(p); e.read > e.most {
		return 0, errors.New("too much was read")
	}
	return len(p), nil
}

// Standard input is read as far as it can be sent, and no further.
func TestPayloadWithoutEnd(t *testing.T) {
	if p, err := payloadOf(t.Context(), strings.NewReader("1234567890"), []string{"-"}, 10); err != nil || len(p) != 10 {
		t.Errorf("%q, %v", p, err)
	}
	if _, err := payloadOf(t.Context(), &endless{most: 1 << 10}, []string{"-"}, 10); !errors.Is(err, client.ErrTooLarge) {
		t.Errorf("a payload without an end: %v", err)
	}
}
