package server_test

import (
	"testing"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/internal/daemontest"
	"github.com/rdmad/rdmad/server"
)

// BenchmarkRegions measures operations of one handler on a region of a caller on the
// other node, or on the same one.
func BenchmarkRegions(b *testing.B) {
	const size = 64 << 20
	var own server.RegionRef
	page, pages := make([]byte, 4096), make([]server.Page, 256)
	for i := range pages {
		pages[i] = server.Page{Off: int64(i) * 8192, Bytes: page}
	}
	big := make([]byte, 1<<20)
	for _, bench := range []struct {
		name  string
		bytes int64
		op    func(r server.RemoteRegion) error
	}{
		{"FetchAdd", 8, func(r server.RemoteRegion) error { _, err := r.FetchAdd(0, 1); return err }},
		{"WriteAt/64", 64, func(r server.RemoteRegion) error { _, err := r.WriteAt(page[:64], 0); return err }},
		{"WriteAt/4KiB", 4096, func(r server.RemoteRegion) error { _, err := r.WriteAt(page, 0); return err }},
		{"WriteAt/1MiB", 1 << 20, func(r server.RemoteRegion) error { _, err := r.WriteAt(big, 0); return err }},
		{"ReadAt/4KiB", 4096, func(r server.RemoteRegion) error { _, err := r.ReadAt(page, 0); return err }},
		{"ReadAt/1MiB", 1 << 20, func(r server.RemoteRegion) error { _, err := r.ReadAt(big, 0); return err }},
		{"WriteScattered/256x4KiB", 256 * 4096, func(r server.RemoteRegion) error { return r.WriteScattered(pages) }},
		{"WriteFrom/64MiB", size, func(r server.RemoteRegion) error { return r.WriteFrom(own, 0) }},
		{"ReadInto/64MiB", size, func(r server.RemoteRegion) error { return r.ReadInto(own, 0) }},
	} {
		for _, place := range []string{"remote", "local"} {
			b.Run(bench.name+"/"+place, func(b *testing.B) {
				na, nb := daemontest.Pair(b, "")
				if place == "local" {
					nb = na
				}
				x := newRegions(b, na, nb, size, map[string]server.Handler{"bench": func(c *server.Call) error {
					r := c.Region(0)
					b.SetBytes(bench.bytes)
					b.ReportAllocs()
					if err := bench.op(r); err != nil {
						return err
					}
					for b.Loop() {
						if err := bench.op(r); err != nil {
							return err
						}
					}
					return nil
				}})
				r, err := x.srv.AllocRegion(b.Context(), size)
				if err != nil {
					b.Fatal(err)
				}
				if own, err = r.Ref(0, size); err != nil {
					b.Fatal(err)
				}
				if _, err := x.conn.CallRegions(b.Context(), nb.Name+"/t/bench", nil, x.ref(b, 0, size, client.MayWrite|client.MayRead|client.MayAtomic)); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}
