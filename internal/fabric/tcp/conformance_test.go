package tcp_test

import (
	"testing"

	"github.com/rdmad/rdmad/internal/fabric"
	"github.com/rdmad/rdmad/internal/fabric/fabrictest"
	"github.com/rdmad/rdmad/internal/fabric/tcp"
)

func TestConformance(t *testing.T) {
	fabrictest.RunConformance(t, func() fabric.Provider { return tcp.New(tcp.Config{}) })
}

// Small buffers take every path on which something does not fit.
func TestConformanceSmallBuffers(t *testing.T) {
	fabrictest.RunConformance(t, func() fabric.Provider {
		return tcp.New(tcp.Config{ReceiveBuffer: 4096, SocketBuffer: 64 << 10})
	})
}
