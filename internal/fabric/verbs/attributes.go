//go:build verbs && cgo && linux

package verbs

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/rdmad/rdmad/internal/fabric"
)

// Attributes implements fabric.Attributer with what ibv_query_qp tells. Of an attribute that
// no step has set yet it tells what the device has, which may be anything.
func (e *Endpoint) Attributes() ([]fabric.Attribute, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.destroyed {
		return nil, fabric.ErrClosed
	}
	a, err := e.lib.query()
	if err != nil {
		return nil, err
	}
	return listAttributes(e.qpn, a), nil
}

// listAttributes puts the attributes into the order in which the states of a queue pair take
// them.
func listAttributes(qpn uint32, a cAttr) (all []fabric.Attribute) {
	stage := "create"
	add := func(name, format string, v ...any) {
		all = append(all, fabric.Attribute{Stage: stage, Name: name, Value: fmt.Sprintf(format, v...)})
	}
	add("qp_num", "%#x", qpn)
	add("qp_type", "RC")
	add("qp_state", "%s", pairState(a.state))
	add("cap.max_send_wr", "%d", a.max_send_wr)
	add("cap.max_recv_wr", "%d", a.max_recv_wr)
	add("cap.max_send_sge", "%d", a.max_send_sge)
	add("cap.max_recv_sge", "%d", a.max_recv_sge)
	add("cap.max_inline_data", "%d", a.max_inline)
	add("sq_sig_all", "%d", a.sq_sig_all)
	stage = "INIT"
	add("pkey_index", "%d", a.pkey_index)
	add("port_num", "%d", a.port)
	add("qp_access_flags", "%#x (%s)", a.access, accessText(a.access))
	stage = "RTR"
	add("path_mtu", "%d", a.mtu)
	add("dest_qp_num", "%#x", a.dest_qpn)
	add("rq_psn", "%#x", a.rq_psn)
	add("max_dest_rd_atomic", "%d", a.max_dest_rd)
	add("min_rnr_timer", "%d", a.min_rnr_timer)
	add("ah_attr.is_global", "%d", a.path.is_global)
	add("ah_attr.dlid", "%#x", a.path.dlid)
	add("ah_attr.sl", "%d", a.path.sl)
	add("ah_attr.src_path_bits", "%d", a.src_path_bits)
	add("ah_attr.static_rate", "%d", a.static_rate)
	add("ah_attr.port_num", "%d", a.path.port)
	if a.path.is_global != 0 {
		var gid [16]byte
		for i, b := range a.path.gid {
			gid[i] = byte(b)
		}
		add("ah_attr.grh.dgid", "%s", netip.AddrFrom16(gid))
		add("ah_attr.grh.sgid_index", "%d", a.path.sgid_index)
		add("ah_attr.grh.flow_label", "%d", a.flow_label)
		add("ah_attr.grh.hop_limit", "%d", a.path.hop_limit)
		add("ah_attr.grh.traffic_class", "%d", a.path.traffic_class)
	}
	stage = "RTS"
	add("timeout", "%d (%s)", a.timeout, timeoutText(uint8(a.timeout)))
	add("retry_cnt", "%d", a.retry)
	add("rnr_retry", "%d", a.rnr_retry)
	add("sq_psn", "%#x", a.sq_psn)
	add("max_rd_atomic", "%d", a.max_rd)
	add("path_mig_state", "%d", a.migration)
	return all
}

func pairState(s cUint32) string {
	if int(s) < len(pairStates) {
		return pairStates[s]
	}
	return fmt.Sprintf("STATE_%d", s)
}

func accessText(flags cUint32) string {
	var names []string
	for _, n := range accessNames {
		if flags&n.bit != 0 {
			names = append(names, n.name)
		}
	}
	return strings.Join(names, "|")
}

// timeoutText says how long an acknowledgement may take, of which 0 means for ever.
func timeoutText(exponent uint8) string {
	if exponent == 0 {
		return "none"
	}
	return (4096 * time.Nanosecond << (exponent & 31)).String()
}

var _ fabric.Attributer = (*Endpoint)(nil)
