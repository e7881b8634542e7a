package main

import (
	"fmt"
	"strings"

	"github.com/rdmad/rdmad/internal/fabric/libfabric"
)

// libfabricText says for people what libfabric offers, or why that is not known. A build
// without it has nothing to say.
func libfabricText(list []libfabric.DeviceInfo, err error) string {
	if !libfabric.Built && err != nil {
		return ""
	}
	var b strings.Builder
	b.WriteString("\nlibfabric, for fabric.provider = \"libfabric\":\n")
	if err != nil {
		fmt.Fprintf(&b, "  not known: %v\n", err)
		return b.String()
	}
	var others []string
	usable := 0
	for _, d := range list {
		if !d.Usable {
			others = append(others, fmt.Sprintf("  %s %s, domain %s: %s\n", d.Provider, d.Endpoint, d.Domain, d.Why))
			continue
		}
		usable++
		writeLibfabric(&b, d)
	}
	if usable == 0 {
		b.WriteString("  nothing that can be used\n")
	}
	if len(others) > 0 {
		fmt.Fprintf(&b, "and what cannot be used:\n%s", strings.Join(unique(others), ""))
	}
	return b.String()
}

func writeLibfabric(b *strings.Builder, d libfabric.DeviceInfo) {
	fmt.Fprintf(b, "  provider %q, version %s, fabric %s, domain %s", d.Provider, d.Version, d.Fabric, d.Domain)
	if d.Address != "" {
		fmt.Fprintf(b, ", address %s", d.Address)
	}
	l := d.Limits
	fmt.Fprintf(b, " (%s)\n    %s\n", d.Format, strings.Join(d.Caps, ", "))
	fmt.Fprintf(b, "    inject %d bytes, messages to %s, %d bytes of data with a write, keys of %d bytes, %d sends and %d receives\n",
		l.Inject, most(l.MaxMessage), l.Data, l.Key, l.Sends, l.Recvs)
	fmt.Fprintf(b, "    progress %s, memory %s\n", d.Progress, orNone(d.MRModes))
	fmt.Fprintf(b, "    %s, %s, %s%s\n", hasOrNot(d.Atomics, "atomics of 8 bytes", "no atomics"),
		hasOrNot(d.Descriptors, "descriptors to wait for", "no descriptors to wait for"),
		hasOrNot(d.Delivery, "completions when data has landed", "completions before data has landed"),
		hasOrNot(d.Notices, ", immediates as messages", ""))
}

func hasOrNot(has bool, yes, no string) string {
	if has {
		return yes
	}
	return no
}

// most prints a limit, which some providers do not have.
func most(n uint64) string {
	if n == ^uint64(0) {
		return "any size"
	}
	return fmt.Sprintf("%d bytes", n)
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "without demands"
	}
	return strings.Join(names, ", ")
}

// unique drops repetitions.
func unique(lines []string) []string {
	seen := map[string]bool{}
	var left []string
	for _, l := range lines {
		if !seen[l] {
			seen[l] = true
			left = append(left, l)
		}
	}
	return left
}
