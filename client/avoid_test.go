package client_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/internal/daemontest"

	control "github.com/rdmad/rdmad/internal/attach"
)

// A target without a node leads to a node to avoid only if there is no other. What is to be
// avoided is checked.
func TestAvoid(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serve(t, a, 1, nil)
	serve(t, b, 1, nil)
	method(t, attach(t, a), "b/t/echo") // node a has heard of it
	s, err := control.Open(t.Context(), a.Socket, control.Hello{Role: control.RoleClient}, control.Events{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = s.Close()
		s.Release()
	}()
	for _, c := range []struct {
		node  string
		avoid []string
		want  string
	}{
		{"", nil, "a"}, {"", []string{"b"}, "a"}, {"", []string{"a"}, "b"}, {"", []string{"a", "b"}, "a"},
		{"", []string{"nobody"}, "a"}, {"a", []string{"a"}, "a"}, {"b", []string{"b"}, "b"},
		{"", make([]string, 1), ""}, {"", []string{"a b"}, ""}, {"", []string{strings.Repeat("x", 64)}, ""},
		{"", strings.Split("abcdefghi", ""), ""},
	} {
		m, err := s.Ask(t.Context(), &control.Message{
			Type: control.TypeResolve, Target: &control.Target{Node: c.node, Service: "t", Method: "echo", Avoid: c.avoid},
		})
		switch {
		case c.want == "" && !errors.Is(err, control.ErrInvalid):
			t.Errorf("%q is no error: %v", c.avoid, err)
		case c.want != "" && (err != nil || m.Route.Node != c.want):
			t.Errorf("to %q without %q: %+v, %v; want %s", c.node, c.avoid, m, err, c.want)
		}
	}
}
