package counters

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdmad/rdmad/shm"
)

// sample is a small file with something in every row.
func sample(t testing.TB) []byte {
	t.Helper()
	f := create(t, Rows{Agents: 1, Lanes: 1, Services: 1})
	f.Lane(LaneID{Domain: "d"}, 0, 64, 128).Latency.Add(1)
	f.Service(ServiceID{Domain: "d"}, 0).Requests++
	data, err := os.ReadFile(f.Path())
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestOpenErrors(t *testing.T) {
	good := sample(t)
	dir := t.TempDir()
	put := func(at int, v uint64) []byte {
		bad := append([]byte{}, good...)
		binary.LittleEndian.PutUint64(bad[at:], v)
		return bad
	}
	for what, c := range map[string]struct {
		data []byte
		want error
	}{
		"empty":            {nil, ErrDamaged},
		"short head":       {good[:100], ErrDamaged},
		"text":             {[]byte(strings.Repeat("counters\n", 1000)), ErrDamaged},
		"not ready":        {put(0, 0), ErrDamaged},
		"no magic":         {put(8, 1), ErrDamaged},
		"size":             {put(24, 1), ErrDamaged},
		"no agent":         {put(32, 0), ErrDamaged},
		"too many agents":  {put(32, 65), ErrDamaged},
		"too many lanes":   {put(40, 1<<60), ErrDamaged},
		"too many methods": {put(48, 1<<60), ErrDamaged},
	} {
		path := filepath.Join(dir, "counters")
		if err := os.WriteFile(path, c.data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, data := range map[string][]byte{"version": put(0, 9), "schema": put(16, 9)} {
		path := filepath.Join(dir, "counters")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		var version *VersionError
		if _, err := Open(path); !errors.As(err, &version) {
			t.Errorf("%s: %v", what, err)
		} else if what == "schema" && !strings.Contains(err.Error(), "rdmad 1.2.3") {
			t.Errorf("%v", err)
		}
	}
	if _, err := Open(filepath.Join(dir, "none")); !errors.Is(err, ErrNotRunning) {
		t.Errorf("no file: %v", err)
	}
	if _, err := Open(dir); !errors.Is(err, ErrDamaged) {
		t.Errorf("a directory: %v", err)
	}
	if _, err := Open("/dev/zero"); !errors.Is(err, ErrDamaged) {
		t.Errorf("a device: %v", err)
	}
}

// A file that becomes shorter while it is read is an error, not a SIGBUS.
func TestShrunk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "counters")
	if err := os.WriteFile(path, sample(t), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := os.Truncate(path, 8192); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Snapshot(); !errors.Is(err, ErrDamaged) {
		t.Errorf("%v", err)
	}
}

// A process that has ended is told from one with the same id.
func TestProcess(t *testing.T) {
	s := read(t, create(t, Rows{Agents: 1}).Path())
	if p := s.Process(); p != ProcessAlive {
		t.Errorf("this process is %v", p)
	}
	other := *s
	other.process.born++
	if p := other.Process(); p != ProcessDead {
		t.Errorf("another process with its id: %v", p)
	}
	other = *s
	other.process.namespace++
	if p := other.Process(); p != ProcessUnknown {
		t.Errorf("a process of another namespace: %v", p)
	}
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	other = *s
	other.process.pid = uint64(cmd.Process.Pid)
	if p := other.Process(); p != ProcessDead {
		t.Errorf("a process that has ended: %v", p)
	}
}

// Whatever is in a file, reading it ends with a snapshot or an error.
func FuzzDecode(f *testing.F) {
	good := sample(f)
	f.Add(good, uint16(0), uint64(0))
	f.Add(good, uint16(24), uint64(1<<40))
	f.Add(good[:5000], uint16(32), uint64(3))
	f.Add([]byte{}, uint16(0), uint64(1))
	f.Fuzz(func(t *testing.T, data []byte, at uint16, v uint64) {
		mem := shm.AlignedBytes(len(data)/8*8 + 8)
		copy(mem, data)
		if i := int(at) / 8 * 8; i+8 <= len(data) {
			binary.LittleEndian.PutUint64(mem[i:], v)
		}
		s, err := decode(mem[:len(data)/8*8])
		if err != nil {
			return
		}
		_ = s.Process()
		for i := range s.Lanes {
			l := &s.Lanes[i]
			_, _, _ = l.Direction.String(), l.Latency.Quantile(0.99), l.GroupSizes.Quantile(0.5)
		}
		_ = s.State.String() + s.Agents[0].State.String()
	})
}
