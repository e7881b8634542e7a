package depot

import (
	"encoding/json"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// written returns the bytes of a catalog.
func written(t *testing.T, c *catalog) []byte {
	t.Helper()
	data := make([]byte, c.size)
	if n, err := unix.Pread(c.fd, data, 0); err != nil || int64(n) != c.size {
		t.Fatal(n, err)
	}
	return data
}

// However much of a catalog was written when its writer died, what is read is the
// beginning of what was written, and it counts only if it says everything.
func TestTornCatalog(t *testing.T) {
	c, err := newCatalog(1)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(c.fd)
	const items = 5
	for n := range items {
		if err := c.append(&record{Op: opPut, Key: fmt.Sprint("k", n), Meta: json.RawMessage(`{"n":1}`), FDs: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.append(&record{Op: opEnd}); err != nil {
		t.Fatal(err)
	}
	end := c.size
	if err := c.append(&record{Op: opDrop, Key: "k0"}); err != nil {
		t.Fatal(err)
	}
	data := written(t, c)
	for n := range len(data) + 1 {
		records, complete := parseCatalog(data[:n])
		if complete != (int64(n) >= end) {
			t.Fatalf("%d of %d bytes: complete is %v", n, len(data), complete)
		}
		for i, r := range records {
			if i < items && (r.Op != opPut || r.Key != fmt.Sprint("k", i)) || i == items && r.Op != opDrop {
				t.Fatalf("%d bytes: record %d is %+v", n, i, r)
			}
		}
	}
	for n := range data {
		data[n] ^= 0xff
		if records, complete := parseCatalog(data); complete && len(records) < items {
			t.Fatalf("byte %d damaged: %d records count as all", n, len(records))
		}
		data[n] ^= 0xff
	}
	if records, complete := readCatalog(c.fd); !complete || len(records) != items+1 {
		t.Errorf("%d records, complete %v", len(records), complete)
	}
}

func FuzzCatalog(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x0c\x00\x00\x00\x00\x00\x00\x00{\"op\":\"end\"}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		records, _ := parseCatalog(data)
		for _, r := range records {
			if r.FDs < 0 || r.FDs > MaxFDs || CheckKey(r.Key) != nil {
				t.Errorf("%+v", r)
			}
		}
	})
}
