package main

import (
	"fmt"
	"path/filepath"
	"strings"
)

// module is a kernel module that the guest loads, with what it depends on.
type module struct {
	name string
	// optional ones are missing in some kernels because others took their place.
	optional bool
}

// modules are what the guest loads, in this order. rdma_rxe cannot add a device
// if nothing computes CRC-32.
var modules = []module{
	{name: "virtio_pci"},
	{name: "virtio_net"},
	{name: "9pnet_virtio"},
	{name: "9p"},
	{name: "overlay"},
	{name: "dummy"},
	{name: "veth"},
	{name: "sch_netem"},
	{name: "crc32_generic", optional: true},
	{name: "crc32-pclmul", optional: true},
	{name: "ib_uverbs"},
	{name: "rdma_ucm"},
	{name: "rdma_rxe"},
}

// moduleFiles reads what modprobe --show-depends prints: the files in the order
// in which they must be loaded.
func moduleFiles(shown string) ([]string, error) {
	var files []string
	for line := range strings.Lines(shown) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0] == "builtin":
		case words[0] == "insmod" && len(words) > 1:
			files = append(files, words[1])
		default:
			return nil, fmt.Errorf("modprobe printed %q, which is neither insmod nor builtin", strings.TrimSpace(line))
		}
	}
	return files, nil
}

// moduleName returns the name under which the guest has a module's file.
func moduleName(file string) string {
	base := filepath.Base(file)
	stem, _, _ := strings.Cut(base, ".ko")
	return stem + ".ko"
}
