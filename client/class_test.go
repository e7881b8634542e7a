package client_test

import (
	"encoding/binary"
	"testing"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// The larger of a request and of the room for its answer decides which class of slots a
// request takes: the smallest that takes it in 12 slots, or the next larger one.
func TestClassOfARequest(t *testing.T) {
	a, b := daemontest.Pair(t, "")
	s, err := server.Attach(t.Context(), b.Socket)
	if err != nil {
		t.Fatal(err)
	}
	room := func(c *server.Call) error {
		return c.Reply(binary.LittleEndian.AppendUint32(nil, uint32(c.Capacity())))
	}
	for name, opts := range map[string][]server.MethodOption{
		"default": nil, "some": {server.AnswerSize(40)}, "like": {server.AnswerLikeRequest()}, "much": {server.AnswerSize(1473)},
	} {
		if err := s.Handle("t", name, room, opts...); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(t.Context()) }()
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		<-done
	}()
	c := attach(t, a)
	const usual = server.DefaultAnswerSize
	const most = 12*128 - 64 // of 12 small slots
	for _, test := range []struct {
		name     string
		size     int
		opts     []client.CallOption
		capacity int
		class    string
	}{
		{"default", 0, nil, usual, "small"},
		{"default", most, nil, usual, "small"},
		{"default", most + 1, nil, usual, "large"},
		{"some", 10, nil, 40, "small"},
		{"like", most, nil, most, "small"},
		{"like", 5000, nil, 5000, "large"},
		{"much", 0, nil, most + 1, "large"},
		{"much", 0, []client.CallOption{client.AnswerSize(4)}, 4, "small"},
		{"some", largest, nil, 40, "large"},
		{"some", 0, []client.CallOption{client.AnswerSize(largest)}, largest, "large"},
	} {
		m := method(t, c, "b/t/"+test.name).With(append(test.opts, client.Direct())...)
		before := map[string]uint64{}
		for _, class := range []string{"small", "large"} {
			before[class] = lanesOf(t, a, class, "out")[0].Requests
		}
		got, err := m.Call(t.Context(), make([]byte, test.size))
		if err != nil || binary.LittleEndian.Uint32(got) != uint32(test.capacity) {
			t.Errorf("%s, %d bytes: room for %d, %v, want %d", test.name, test.size, got, err, test.capacity)
		}
		for class, n := range before {
			if sent := lanesOf(t, a, class, "out")[0].Requests - n; sent != map[bool]uint64{true: 1}[class == test.class] {
				t.Errorf("%s, %d bytes: %d requests of class %s, want class %s", test.name, test.size, sent, class, test.class)
			}
		}
	}
	quiet(t, a, b)
}
