//go:build libfabric && cgo && linux

package libfabric

import (
	"fmt"
	"strings"

	"github.com/rdmad/rdmad/internal/fabric"
)

// Attributes implements fabric.Attributer with what the provider and the endpoint were opened
// with. Names are those of fi_info.
func (e *Endpoint) Attributes() ([]fabric.Attribute, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.destroyed {
		return nil, fabric.ErrClosed
	}
	var all []fabric.Attribute
	stage := "provider"
	add := func(name, format string, v ...any) {
		all = append(all, fabric.Attribute{Stage: stage, Name: name, Value: fmt.Sprintf(format, v...)})
	}
	i, l := &e.dev.info, &e.dev.info.Limits
	add("prov_name", "%s", i.Provider)
	add("prov_version", "%s", i.Version)
	add("fabric_attr.name", "%s", i.Fabric)
	add("domain_attr.name", "%s", i.Domain)
	add("addr_format", "%s", i.Format)
	add("caps", "%s", strings.Join(i.Caps, " "))
	add("mode", "%s", orNone(i.Modes))
	add("domain_attr.mr_mode", "%s", orNone(i.MRModes))
	add("domain_attr.data_progress", "%s", i.Progress)
	add("domain_attr.cq_data_size", "%d", l.Data)
	add("domain_attr.mr_key_size", "%d", l.Key)
	add("ep_attr.max_msg_size", "%d", l.MaxMessage)
	add("tx_attr.inject_size", "%d", l.Inject)
	stage = "endpoint"
	add("ep_attr.type", "%s", i.Endpoint)
	add("tx_attr.size", "%d", e.sendDepth)
	add("rx_attr.size", "%d", e.recvDepth)
	op := "FI_TRANSMIT_COMPLETE"
	if e.dev.delivery {
		op = "FI_DELIVERY_COMPLETE"
	}
	add("tx_attr.op_flags", "%s", op)
	immediates := "with the write"
	if e.dev.notices {
		immediates = "as messages"
	}
	add("immediates", "%s", immediates)
	add("name", "%x", e.addr.name)
	if e.peer.provider != "" {
		stage = "peer"
		add("prov_name", "%s", e.peer.provider)
		add("prov_version", "%s", versionText(e.peer.version))
		add("name", "%x", e.peer.name)
	}
	return all, nil
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, " ")
}

var _ fabric.Attributer = (*Endpoint)(nil)
