package depot

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"

	"golang.org/x/sys/unix"
)

// catalog is a memfd with the keys and the metadata of everything that is kept, as a
// list of changes: each record is its length and its checksum, 4 bytes each, and JSON. A
// record that was not written completely ends the list, so a death at any point loses no
// more than what was not done yet.
type catalog struct {
	fd         int
	generation int
	size       int64
	first      int64 // size when it was begun
}

const (
	recordHeader = 8
	// maxCatalog bounds what is read of a catalog.
	maxCatalog = 256 << 20
	// wasteAt is how much a catalog grows, at the least, before it is begun anew.
	wasteAt = 1 << 20
)

func newCatalog(generation int) (*catalog, error) {
	fd, err := unix.MemfdCreate("rdmad-catalog", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("depot: catalog: %w", err)
	}
	return &catalog{fd: fd, generation: generation}, nil
}

// newCatalogOf makes a catalog that says everything: these records.
func newCatalogOf(generation int, records []record) (*catalog, error) {
	c, err := newCatalog(generation)
	if err != nil {
		return nil, err
	}
	for k := range records {
		if err = c.append(&records[k]); err != nil {
			break
		}
	}
	if err == nil {
		err = c.append(&record{Op: opEnd})
	}
	if err != nil {
		return nil, errors.Join(err, unix.Close(c.fd))
	}
	return c, nil
}

func (c *catalog) name() string { return catalogName + strconv.Itoa(c.generation) }

// append adds a record with one write.
func (c *catalog) append(r *record) error {
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("depot: catalog: %s: %w", r.Key, err)
	}
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(data)))
	b = binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(data))
	b = append(b, data...)
	n, err := unix.Pwrite(c.fd, b, c.size)
	if err == nil && n < len(b) {
		err = unix.ENOSPC
	}
	if err != nil {
		return fmt.Errorf("depot: catalog: %s: %w", r.Key, err)
	}
	if c.size += int64(n); r.Op == opEnd {
		c.first = c.size
	}
	return nil
}

// wasteful reports whether most of the catalog is about changes.
func (c *catalog) wasteful() bool { return c.size > 4*c.first+wasteAt }

// readCatalog returns the records of a catalog, and whether it says everything.
func readCatalog(fd int) (records []record, complete bool) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Size > maxCatalog {
		return nil, false
	}
	data := make([]byte, st.Size)
	for n := 0; n < len(data); {
		k, err := unix.Pread(fd, data[n:], int64(n))
		if err != nil || k == 0 {
			return nil, false
		}
		n += k
	}
	return parseCatalog(data)
}

// parseCatalog is readCatalog for the bytes of one.
func parseCatalog(data []byte) (records []record, complete bool) {
	for len(data) >= recordHeader {
		n := binary.LittleEndian.Uint32(data)
		sum := binary.LittleEndian.Uint32(data[4:])
		data = data[recordHeader:]
		if uint64(n) > uint64(len(data)) || crc32.ChecksumIEEE(data[:n]) != sum {
			break
		}
		var r record
		if err := json.Unmarshal(data[:n], &r); err != nil || r.FDs < 0 || r.FDs > MaxFDs || r.Op != opEnd && CheckKey(r.Key) != nil {
			break
		}
		data = data[n:]
		if r.Op == opEnd {
			complete = true
			continue
		}
		records = append(records, r)
	}
	return records, complete
}
