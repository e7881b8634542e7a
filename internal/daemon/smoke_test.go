package daemon_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
)

func TestCallBetweenNodes(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	serve(t, b)
	c := attachClient(t, a)
	callable(t, c, "b/text/upper")
	for _, size := range []int{0, 1, 64, 65, 900, 5000, 100_000, 2_000_000} {
		msg := strings.Repeat("q", size)
		m, err := c.Method(t.Context(), "b/text/upper")
		if err != nil {
			t.Fatal(err)
		}
		got, err := m.With(client.AnswerSize(size)).Call(t.Context(), []byte(msg))
		if err != nil || string(got) != strings.ToUpper(msg) {
			t.Fatalf("size %d: %d bytes, %v", size, len(got), err)
		}
	}
	if _, err := c.Call(t.Context(), "b/text/fail", nil); !errors.Is(err, client.ErrRemote) || !strings.Contains(err.Error(), "no luck") {
		t.Errorf("fail: %v", err)
	}
	if _, err := c.Call(t.Context(), "b/text/panic", nil); !errors.Is(err, client.ErrRemote) {
		t.Errorf("panic: %v", err)
	}
	if _, err := c.Call(t.Context(), "b/text/none", nil); !errors.Is(err, client.ErrNoService) {
		t.Errorf("unknown method: %v", err)
	}
	if err := c.Post(t.Context(), "b/text/upper", []byte("x")); err != nil {
		t.Errorf("post: %v", err)
	}
}

func TestCallOnOneNode(t *testing.T) {
	a, _ := daemontest.Pair(t, "")
	serve(t, a)
	c := attachClient(t, a)
	for i := range 1000 {
		got, err := c.Call(t.Context(), "text/upper", []byte("abc"))
		if err != nil || string(got) != "ABC" {
			t.Fatalf("call %d: %q, %v", i, got, err)
		}
	}
}
