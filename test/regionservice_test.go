package test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"

	"github.com/rdmad/rdmad/client"
	"github.com/rdmad/rdmad/server"
)

const (
	// regionPage is the size of the pages of the tests, regionParts into how many
	// parts of pages they divide a region.
	regionPage  = 4096
	regionParts = 4
)

// regionWork is a service that works on regions of its callers.
type regionWork struct {
	flooding atomic.Int64
	mu       sync.Mutex
	ended    string // why the last flood has ended
}

// regionsRole offers the methods below until it is told to end.
func regionsRole(ctx context.Context, args *roleArgs, say *json.Encoder) error {
	s, err := server.Attach(ctx, args.Socket, server.Workers(args.Handlers))
	if err != nil {
		return err
	}
	w := new(regionWork)
	// In order: who knows of the last one knows of all.
	for _, m := range []struct {
		name   string
		handle server.Handler
	}{
		{"digest", w.digest}, {"add", w.add}, {"count", w.count}, {"flood", w.flood}, {"flooding", w.countFlooding}, {"ended", w.lastEnd}, {"scatter", w.scatter},
	} {
		if err := s.Handle(args.Service, m.name, m.handle); err != nil {
			return errors.Join(err, s.Close())
		}
	}
	if err := say.Encode(os.Getpid()); err != nil {
		return err
	}
	return errors.Join(s.Serve(ctx), s.Close())
}

// scatter writes the pages of a part of the region, in any order: a page's bytes
// follow from its number and the seed.
func (w *regionWork) scatter(c *server.Call) error {
	seed, part := binary.LittleEndian.Uint64(c.Request()), int(c.Request()[8])
	r := c.Region(0)
	var pages []server.Page
	for i := part; i < r.Len()/regionPage; i += regionParts {
		p := server.Page{Off: int64(i) * regionPage, Bytes: make([]byte, regionPage)}
		stream(p.Bytes, seed+uint64(i))
		pages = append(pages, p)
	}
	rand.Shuffle(len(pages), func(i, j int) { pages[i], pages[j] = pages[j], pages[i] })
	for len(pages) > 0 {
		n := min(len(pages), 1+rand.IntN(300))
		if err := r.WriteScattered(pages[:n]); err != nil {
			return err
		}
		pages = pages[n:]
	}
	return nil
}

// digest answers with the digest of the region.
func (w *regionWork) digest(c *server.Call) error {
	p := make([]byte, c.Region(0).Len())
	if _, err := c.Region(0).ReadAt(p, 0); err != nil {
		return err
	}
	return number(c, digest(p))
}

// add adds one to the region's first word as often as the request says.
func (w *regionWork) add(c *server.Call) error {
	for range binary.LittleEndian.Uint64(c.Request()) {
		if _, err := c.Region(0).FetchAdd(0, 1); err != nil {
			return err
		}
	}
	return nil
}

// count adds one to the region's first word as often as the request says, and answers how
// often that was done, and how often nobody knows.
func (w *regionWork) count(c *server.Call) error {
	var done, unknown uint64
	for range binary.LittleEndian.Uint64(c.Request()) {
		switch _, err := c.Region(0).FetchAdd(0, 1); {
		case err == nil:
			done++
		case errors.Is(err, server.ErrLost):
			unknown++
		default:
			return err
		}
	}
	return c.Reply(append(encoded(done), encoded(unknown)...))
}

// flood writes to the region until that fails.
func (w *regionWork) flood(c *server.Call) (err error) {
	w.flooding.Add(1)
	p := make([]byte, 1<<20)
	for n := byte(0); err == nil; n++ {
		for i := range p {
			p[i] = n
		}
		_, err = c.Region(0).WriteAt(p, 0)
	}
	w.mu.Lock()
	w.ended = err.Error()
	w.mu.Unlock()
	w.flooding.Add(-1)
	return err
}

func (w *regionWork) countFlooding(c *server.Call) error { return number(c, uint64(w.flooding.Load())) }

func (w *regionWork) lastEnd(c *server.Call) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return c.Reply([]byte(w.ended))
}

// floodedRole is a caller whose region is written to until one of the two ends.
func floodedRole(ctx context.Context, args *roleArgs, say *json.Encoder) error {
	conn, err := client.Attach(ctx, args.Socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	region, err := conn.AllocRegion(ctx, 1<<20)
	if err != nil {
		return err
	}
	ref, err := region.Ref(0, region.Len(), client.MayWrite)
	if err != nil {
		return err
	}
	if err := say.Encode(os.Getpid()); err != nil {
		return err
	}
	_, err = conn.CallRegions(ctx, args.Node+"/"+args.Service+"/flood", nil, ref)
	return err
}
