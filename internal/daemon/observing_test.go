package daemon

import (
	"errors"
	"testing"

	"github.com/rs/zerolog"
)

// A question for the status that comes when everything has been given back touches none of it: who asks by HTTP is not waited for.
func TestStatusAfterStop(t *testing.T) {
	c, err := newConductor(parsed(t, ""), 0, nil, nil, nil, false, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	if raw, err := (watched{c}).Status(t.Context()); err != nil || len(raw) == 0 {
		t.Errorf("%s, %v", raw, err)
	}
	c.stop()
	if raw, err := (watched{c}).Status(t.Context()); !errors.Is(err, errStopping) {
		t.Errorf("%s, %v", raw, err)
	}
}
