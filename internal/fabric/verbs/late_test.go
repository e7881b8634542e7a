//go:build verbs && cgo && linux

package verbs

import (
	"errors"
	"testing"

	"github.com/rdmad/rdmad/internal/fabric"
)

// An end whose Connect has come late finds that the device is gone, and makes nothing of it any more.
func TestConnectBesideCloseOfTheDevice(t *testing.T) {
	needDevice(t)
	cfg := Default()
	cfg.Connect = ConnectCM
	d := openDevice(t, cfg)
	q, err := d.CreateCQ(16, nil)
	if err != nil {
		t.Fatal(err)
	}
	pd, err := d.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	made, err := pd.CreateEndpoint(fabric.EndpointAttr{CQ: q, SendDepth: 4, RecvDepth: 4})
	if err != nil {
		t.Fatal(err)
	}
	e := made.(*Endpoint)
	if err := errors.Join(e.Close(), q.Close(), pd.Close(), d.Close()); err != nil {
		t.Fatal(err)
	}
	if err := e.requestCM(t.Context(), e.addr); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("%v", err)
	}
}
