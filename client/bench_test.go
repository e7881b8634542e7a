package client_test

import (
	"testing"

	"github.com/rdmad/rdmad/internal/daemontest"
)

// What a call costs and allocates, over two nodes with the service in a process of its
// own: go test ./client -run '^$' -bench Call -benchmem
func BenchmarkCalls(b *testing.B) {
	nodes, err := daemontest.Start("")
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := nodes.Stop(); err != nil {
			b.Error(err)
		}
	}()
	daemontest.Spawn(b, "service", nodes.B.Socket, "someone")
	m := method(b, attach(b, nodes.A), "b/t/who")
	ctx, msg, buf := b.Context(), []byte("hello"), make([]byte, 64)
	seen := 0
	look := func(answer []byte) error {
		seen += len(answer)
		return nil
	}
	for _, style := range []struct {
		name string
		do   func() error
	}{
		{"CallInto", func() error {
			answer, err := m.CallInto(ctx, msg, buf)
			seen += len(answer)
			return err
		}},
		{"CallFunc", func() error { return m.CallFunc(ctx, msg, look) }},
		{"Reserve", func() error {
			r, err := m.Reserve(ctx, len(msg))
			if err != nil {
				return err
			}
			copy(r.Bytes(), msg)
			answer, err := r.CallInPlace(ctx)
			seen += len(answer.Bytes())
			answer.Release()
			return err
		}},
	} {
		b.Run(style.name, func(b *testing.B) {
			b.ReportAllocs()
			seen = 0
			for b.Loop() {
				if err := style.do(); err != nil {
					b.Fatal(err)
				}
			}
			if seen != b.N*len("someone") {
				b.Errorf("%d bytes of answers to %d calls", seen, b.N)
			}
		})
	}
}
