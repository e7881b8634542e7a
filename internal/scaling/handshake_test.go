package scaling_test

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/nodecert"
)

// BenchmarkHandshake is what two nodes' mutual TLS costs, both ends together: the
// processor time in docs/scaling.md is that of one.
func BenchmarkHandshake(b *testing.B) {
	dir := b.TempDir()
	if _, err := nodecert.Make(nodecert.Plan{Dir: dir, Cluster: "bench", Nodes: []string{"a", "b"}, CAValid: time.Hour, NodeValid: time.Hour}); err != nil {
		b.Fatal(err)
	}
	end := func(name string) *tls.Config {
		f := nodecert.FilesOf(dir, name)
		cert, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			b.Fatal(err)
		}
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			b.Fatal(err)
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(pem)
		check := func(s tls.ConnectionState) error {
			_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
			return err
		}
		return &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAnyClientCert, InsecureSkipVerify: true, MinVersion: tls.VersionTLS13, VerifyConnection: check}
	}
	x, y := end("a"), end("b")
	before := processorTime(b)
	for b.Loop() {
		p, q := net.Pipe()
		done := make(chan error, 1)
		go func() {
			s := tls.Server(q, y)
			err := s.Handshake()
			if err == nil {
				_, err = s.Write([]byte{1})
			}
			done <- err
		}()
		c := tls.Client(p, x)
		if _, err := c.Read(make([]byte, 1)); err != nil {
			b.Fatal(err)
		}
		if err := <-done; err != nil {
			b.Fatal(err)
		}
		_, _ = p.Close(), q.Close()
	}
	b.ReportMetric(float64((processorTime(b)-before).Microseconds())/float64(b.N)/2, "cpu-us/end")
}

// processorTime is what this process has used.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
