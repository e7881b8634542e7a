package daemon

import (
	"errors"
	"slices"
	"testing"

	"github.com/rdmad/rdmad/internal/attach"
	"github.com/rdmad/rdmad/server"
)

// Nobody is told of what a worker registers that it serves already: neither who waits for a service, nor peers.
func TestRegisteringTheSameIsNoNews(t *testing.T) {
	cfg := parsed(t, "[observe]\ncounters = \"off\"\n[limits]\nservices = 2\n")
	c, end := served(t, cfg, successors(t, cfg))
	defer end()
	s, err := server.Attach(t.Context(), cfg.Node.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	w := workerOf(t, c)
	news := func() <-chan struct{} {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.changed
	}
	one, two, three := attach.Method{Service: "s", Method: "one"}, attach.Method{Service: "s", Method: "two"}, attach.Method{Service: "s", Method: "three"}
	larger := one
	larger.Answer = 100
	var first []uint32
	for _, step := range []struct {
		name    string
		methods []attach.Method
		refused error
		told    bool
	}{
		{"a method", []attach.Method{one}, nil, true},
		{"the same", []attach.Method{one}, nil, false},
		{"none", nil, nil, false},
		{"another size of answers", []attach.Method{larger}, nil, true},
		{"the same again", []attach.Method{larger, larger}, nil, false},
		{"another one, and one too many", []attach.Method{two, three}, attach.ErrLimit, true},
		{"the other one", []attach.Method{larger, two}, nil, false},
	} {
		before := news()
		a, err := c.register(w, &attach.Message{Methods: step.methods})
		if !errors.Is(err, step.refused) {
			t.Fatalf("%s: %v", step.name, err)
		}
		if told := news() != before; told != step.told {
			t.Errorf("%s: told is %v", step.name, told)
		}
		if err != nil {
			continue
		}
		if first == nil {
			first = a.MethodIDs
		}
		if len(a.MethodIDs) != len(step.methods) || len(a.MethodIDs) > 0 && !slices.Equal(a.MethodIDs[:1], first) {
			t.Errorf("%s: ids %v, first %v", step.name, a.MethodIDs, first)
		}
	}
}
