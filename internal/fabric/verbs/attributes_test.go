//go:build verbs && cgo && linux

package verbs

import (
	"net/netip"
	"testing"

	"github.com/rdmad/rdmad/internal/fabric"
)

// What a queue pair says of itself has the names of ibv_qp_attr, by the state that takes it.
func TestListAttributes(t *testing.T) {
	a := cAttr{
		state: 3, mtu: 1024, dest_qpn: 0x11, rq_psn: 0xabc, sq_psn: 0xdef, access: 0xf, port: 1,
		max_dest_rd: 16, max_rd: 8, min_rnr_timer: 12, timeout: 14, retry: 7, rnr_retry: 6, max_send_wr: 128,
		flow_label: 9, path: cPath{is_global: 1, sgid_index: 3, hop_limit: 64, traffic_class: 8, port: 1},
	}
	for i, b := range netip.MustParseAddr("::ffff:10.9.9.1").As16() {
		a.path.gid[i] = cUint8(b)
	}
	want := map[fabric.Attribute]bool{
		{Stage: "create", Name: "qp_num", Value: "0x77"}: true, {Stage: "create", Name: "qp_state", Value: "RTS"}: true,
		{Stage: "create", Name: "cap.max_send_wr", Value: "128"}:                                                    true,
		{Stage: "INIT", Name: "qp_access_flags", Value: "0xf (LOCAL_WRITE|REMOTE_WRITE|REMOTE_READ|REMOTE_ATOMIC)"}: true,
		{Stage: "RTR", Name: "path_mtu", Value: "1024"}:                                                             true, {Stage: "RTR", Name: "dest_qp_num", Value: "0x11"}: true,
		{Stage: "RTR", Name: "ah_attr.grh.dgid", Value: "::ffff:10.9.9.1"}: true, {Stage: "RTR", Name: "ah_attr.grh.hop_limit", Value: "64"}: true,
		{Stage: "RTS", Name: "timeout", Value: "14 (67.108864ms)"}: true, {Stage: "RTS", Name: "rnr_retry", Value: "6"}: true,
	}
	all := listAttributes(0x77, a)
	for _, got := range all {
		delete(want, got)
	}
	for missing := range want {
		t.Errorf("it does not say %+v", missing)
	}
	// Without a global route there is none to tell.
	a.path.is_global = 0
	if n := len(all) - len(listAttributes(0x77, a)); n != 5 {
		t.Errorf("%d attributes of a route that there is not", n)
	}
	if got := timeoutText(0); got != "none" {
		t.Errorf("a timeout of 0 is %q", got)
	}
	if got := pairState(99); got != "STATE_99" {
		t.Errorf("state 99 is %q", got)
	}
}
