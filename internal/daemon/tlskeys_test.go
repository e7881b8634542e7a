package daemon_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/rdmad/rdmad/internal/nodecert"
)

// expand is HKDF-Expand-Label of RFC 8446, without a context.
func expand(t *testing.T, secret []byte, label string, n int) []byte {
	t.Helper()
	info := binary.BigEndian.AppendUint16(nil, uint16(n))
	info = append(info, byte(len("tls13 ")+len(label)))
	info = append(append(info, "tls13 "+label...), 0)
	key, err := hkdf.Expand(sha256.New, secret, string(info), n)
	check(t, err)
	return key
}

// record is record number seq of TLS_AES_128_GCM_SHA256 with a traffic secret.
func record(t *testing.T, secret []byte, seq uint64, kind byte, content []byte) []byte {
	t.Helper()
	block, err := aes.NewCipher(expand(t, secret, "key", 16))
	check(t, err)
	aead, err := cipher.NewGCM(block)
	check(t, err)
	nonce := expand(t, secret, "iv", aead.NonceSize())
	last := nonce[len(nonce)-8:]
	binary.BigEndian.PutUint64(last, binary.BigEndian.Uint64(last)^seq)
	head := binary.BigEndian.AppendUint16([]byte{23, 3, 3}, uint16(len(content)+1+aead.Overhead()))
	return aead.Seal(head, nonce, append(bytes.Clone(content), kind), head)
}

// A peer may ask for new keys at any time, also long after this node has last said something. crypto/tls answers that, but does not
// ask, so the peer is made by hand here.
func TestPeerAsksForNewKeys(t *testing.T) {
	c, a, b := secured(t)
	check(t, b.Halt())
	raw, err := net.Dial("tcp", statusOf(t, a).Listen)
	check(t, err)
	defer raw.Close()
	var secrets bytes.Buffer
	conf := stranger(c.pair(t, nodecert.Request{Node: "b"}))
	conf.KeyLogWriter = &secrets
	conn := tls.Client(raw, conf)
	check(t, conn.Handshake())
	if suite := conn.ConnectionState().CipherSuite; suite != tls.TLS_AES_128_GCM_SHA256 {
		t.Skipf("the ends have agreed on %s, and the records here are of AES-128: run it on a processor with AES instructions", tls.CipherSuiteName(suite))
	}
	p := poseOver(t, conn)
	p.send(frame{"type": "repeated"})
	p.send(frame{"type": "ping", "seq": 5})
	p.receive("pong")
	const sent = 4 // records: hello, ready and these
	_, secret, _ := strings.Cut(secrets.String(), "CLIENT_TRAFFIC_SECRET_0 ")
	line, _, _ := strings.Cut(secret, "\n")
	last, err := hex.DecodeString(strings.Fields(line)[1])
	check(t, err)

	<-time.After(5500 * time.Millisecond)                                 // longer than a write may take
	_, err = raw.Write(record(t, last, sent, 22, []byte{24, 0, 0, 1, 1})) // KeyUpdate, update_requested
	check(t, err)
	next := expand(t, last, "traffic upd", len(last))
	ping, err := json.Marshal(frame{"type": "ping", "seq": 6})
	check(t, err)
	_, err = raw.Write(record(t, next, 0, 23, append(binary.BigEndian.AppendUint32(nil, uint32(len(ping))), ping...)))
	check(t, err)
	p.receive("pong")
}
