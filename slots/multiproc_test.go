package slots_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmad/rdmad/shm"
	"github.com/rdmad/rdmad/slots"
)

// roleEnv makes the test binary a worker process of the stress test. Its
// descriptor 3 is a socket, over which its orders and segments come.
const roleEnv = "RDMAD_SLOTS_TEST_ROLE"

// orders is what a worker process is told.
type orders struct {
	Geometry slots.Geometry
	Owner    int
	Messages int
	Seed     uint64
}

// stressWorkerMain is the main function of a worker process.
func stressWorkerMain() int {
	c, err := fileConn(3)
	if err == nil {
		reply := "done"
		if err = runOrders(c); err != nil {
			reply = err.Error()
		}
		err = errors.Join(err, shm.SendFDs(c, []byte(reply)))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func runOrders(c *net.UnixConn) error {
	buf := make([]byte, 4096)
	n, fds, err := shm.RecvFDs(c, buf)
	if err != nil {
		return err
	}
	if len(fds) != 4 {
		return fmt.Errorf("%d descriptors", len(fds))
	}
	var o orders
	if err := json.Unmarshal(buf[:n], &o); err != nil {
		return err
	}
	lane, err := shm.Open(fds[0], shm.KindLane, o.Geometry.SegmentSize())
	if err != nil {
		return err
	}
	domain, err := shm.Open(fds[1], shm.KindDomain, slots.DomainSegmentSize)
	if err != nil {
		return err
	}
	own, err := shm.Open(fds[2], shm.KindWorker, slots.WorkerSegmentSize)
	if err != nil {
		return err
	}
	ring, err := slots.NewRing(lane.Bytes(), o.Geometry)
	if err != nil {
		return err
	}
	bell := shm.OpenBell(fds[3])
	w := newStressWorker(ring, slots.NewBells(domain.Bytes()), bell, &slots.NewWorkerRings(own.Bytes()).Down, o.Owner, o.Seed)
	if err := w.run(o.Messages); err != nil {
		return err
	}
	return errors.Join(lane.Close(), domain.Close(), own.Close(), bell.Close())
}

func fileConn(fd int) (*net.UnixConn, error) {
	f := os.NewFile(uintptr(fd), "socket")
	c, err := net.FileConn(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}

// stressProcess is a worker process as its parent sees it.
type stressProcess struct {
	cmd  *exec.Cmd
	conn *net.UnixConn
}

func startWorker(o orders, fds ...int) (*stressProcess, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	theirs := os.NewFile(uintptr(pair[1]), "socket")
	defer theirs.Close()
	c, err := fileConn(pair[0])
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"=worker", "GORACE=atexit_sleep_ms=0", "GOMAXPROCS=2")
	cmd.ExtraFiles, cmd.Stderr = []*os.File{theirs}, os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	msg, err := json.Marshal(o)
	if err == nil {
		err = shm.SendFDs(c, msg, fds...)
	}
	if err != nil {
		_ = cmd.Process.Kill()
		return nil, errors.Join(err, cmd.Wait(), c.Close())
	}
	return &stressProcess{cmd: cmd, conn: c}, nil
}

// wait returns what the process reported, once it is gone. A killed process
// reports nothing.
func (p *stressProcess) wait() (report string, err error) {
	buf := make([]byte, 4096)
	n, _, rerr := shm.RecvFDs(p.conn, buf)
	err = p.cmd.Wait()
	_ = p.conn.Close()
	if rerr != nil {
		return "", err
	}
	return string(buf[:n]), err
}

func newSegment(t *testing.T, name string, kind shm.Kind, size int) *shm.Segment {
	t.Helper()
	s, err := shm.Create(shm.CreateOptions{Name: name, Kind: kind, Size: size})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

const stressProcesses = 8

// stress runs worker processes against a daemon in this one. Owners for which
// killAt is not 0 are killed once the daemon has answered so many of their
// requests, and swept when they are gone.
func stress(t *testing.T, g slots.Geometry, each int, killAt func(owner int) int64) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	lane := newSegment(t, "lane", shm.KindLane, g.SegmentSize())
	domain := newSegment(t, "domain", shm.KindDomain, slots.DomainSegmentSize)
	ring, err := slots.NewRing(lane.Bytes(), g)
	if err != nil {
		t.Fatal(err)
	}
	own := make([]*shm.Segment, stressProcesses+1)
	rings := make([]*slots.WorkerRings, stressProcesses+1)
	for owner := 1; owner <= stressProcesses; owner++ {
		own[owner] = newSegment(t, "worker", shm.KindWorker, slots.WorkerSegmentSize)
		rings[owner] = slots.NewWorkerRings(own[owner].Bytes())
	}
	d, err := newStressDaemon(ring, slots.NewBells(domain.Bytes()), rings)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()

	procs := make([]*stressProcess, stressProcesses+1)
	for owner := 1; owner <= stressProcesses; owner++ {
		o := orders{Geometry: g, Owner: owner, Messages: each, Seed: seed}
		if procs[owner], err = startWorker(o, lane.FD(), domain.FD(), own[owner].FD(), d.bell.FD()); err != nil {
			t.Fatal(err)
		}
		p := procs[owner].cmd.Process
		guard := time.AfterFunc(5*time.Minute, func() { _ = p.Kill() })
		defer guard.Stop()
	}
	killed := make([]bool, stressProcesses+1)
	d.onCycle = func() {
		for owner := 1; owner <= stressProcesses; owner++ {
			if at := killAt(owner); at > 0 && !killed[owner] && d.handled[owner].Load() >= at {
				killed[owner] = true
				_ = procs[owner].cmd.Process.Kill()
			}
		}
	}
	start := time.Now()
	stop, failed := make(chan struct{}), make(chan error, 1)
	go func() {
		err := d.run(stop)
		if err != nil { // nobody will answer the workers
			for owner := 1; owner <= stressProcesses; owner++ {
				_ = procs[owner].cmd.Process.Kill()
			}
		}
		failed <- err
	}()
	var wg sync.WaitGroup
	for owner := 1; owner <= stressProcesses; owner++ {
		wg.Go(func() {
			report, err := procs[owner].wait()
			switch {
			case killAt(owner) > 0 && report == "":
				d.deaths <- owner // gone for certain: Wait has returned
			case report != "done" || err != nil:
				t.Errorf("worker %d: %q, %v", owner, report, err)
			}
		})
	}
	wg.Wait()
	close(stop)
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	took := time.Since(start)
	// The daemon stops when it is idle: deaths are swept, answers are out.
	if err := d.idle(); err != nil {
		t.Error(err)
		dump(t, ring)
	}
	deaths := 0
	for owner := 1; owner <= stressProcesses; owner++ {
		n := d.handled[owner].Load()
		if d.dead[owner] {
			deaths++
		} else if n != int64(each) {
			t.Errorf("worker %d got %d answers, want %d", owner, n, each)
		}
		if killAt(owner) > 0 && !d.dead[owner] {
			t.Logf("worker %d finished before it could be killed", owner)
		}
	}
	t.Logf("%d messages in %d groups, %d deaths, %v: %.0f messages/s", d.messages, d.groups, deaths, took.Round(time.Millisecond), float64(d.messages)/took.Seconds())
}

func stressMessages(t *testing.T, n int) int {
	switch {
	case raceEnabled:
		n /= 40
	case testing.Short():
		n /= 20
	}
	return n / stressProcesses
}

func TestStressProcesses(t *testing.T) {
	stress(t, small, stressMessages(t, 2_000_000), func(int) int64 { return 0 })
}

// A crowded ring has more claims that fail, roll back and sleep.
func TestStressProcessesCrowded(t *testing.T) {
	stress(t, slots.Geometry{SlotSize: 128, Slots: 61, MaxRun: 8}, stressMessages(t, 200_000), func(int) int64 { return 0 })
}

func TestStressProcessesKilled(t *testing.T) {
	for round := range 3 {
		for _, g := range []slots.Geometry{small, {SlotSize: 128, Slots: 61, MaxRun: 8}} {
			t.Run(fmt.Sprintf("%d slots, round %d", g.Slots, round), func(t *testing.T) {
				each := stressMessages(t, 160_000)
				stress(t, g, each, func(owner int) int64 {
					if owner%2 == 0 {
						return 0
					}
					return int64(each) / int64(owner+1+round)
				})
			})
		}
	}
}
