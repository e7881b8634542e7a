package tcp

import (
	"crypto/tls"
	"io"
	"net"
	"testing"

	"github.com/rdmad/rdmad/internal/fabric"
)

// bareTLS is a TLS connection of crypto/tls alone, both ends.
func bareTLS(t *testing.T) (client, server *tls.Conn) {
	t.Helper()
	g := guardOf(t, "test")
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer ln.Close()
	accepted := make(chan *tls.Conn, 1)
	go func() {
		c, err := ln.Accept()
		if err != nil {
			accepted <- nil
			return
		}
		conf := g.Server()
		conf.DynamicRecordSizingDisabled = true
		s := tls.Server(c, conf)
		_ = s.Handshake()
		accepted <- s
	}()
	conf := g.Client("")
	conf.DynamicRecordSizingDisabled = true
	client, err = tls.Dial("tcp", ln.Addr().String(), conf)
	must(t, err)
	server = <-accepted
	if server == nil {
		t.Fatal("no connection")
	}
	t.Cleanup(func() { _, _ = client.Close(), server.Close() })
	return client, server
}

// With TLS a batch costs the allocations of crypto/tls for its records, however many
// messages it has, and no other.
func TestAllocationsTLS(t *testing.T) {
	g := guardOf(t, "test")
	for _, shape := range [][2]int{{1, 64}, {64, 128}, {8, 4096}, {4, 16 << 10}} {
		size := shape[0] * (shape[1] + headerSize)
		client, server := bareTLS(t)
		data := make([]byte, size)
		bare := func() {
			if _, err := client.Write(data); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(server, data); err != nil {
				t.Fatal(err)
			}
		}
		p := newPairWith(t, Config{Security: g})
		wrs, recv, c := p.batch(shape[0], shape[1]), make([]fabric.RecvWR, 1), make([]fabric.Completion, 8)
		ours := func() { p.round(t, wrs, recv, c) }
		for range 10 {
			bare() // buffers grow to their size
			ours()
		}
		want := testing.AllocsPerRun(50, bare)
		got := testing.AllocsPerRun(50, ours)
		t.Logf("%d messages of %d bytes: %v allocations, crypto/tls alone %v", shape[0], shape[1], got, want)
		// crypto/tls allocates once for each record, and once more for one that came in
		// two parts; alone it may find several records at once. The race detector makes
		// it forget buffers.
		if records := (size + recordSize - 1) / recordSize; got > float64(2*(records+1)) {
			t.Errorf("%d messages of %d bytes: %v allocations, crypto/tls alone %v", shape[0], shape[1], got, want)
		}
	}
}
