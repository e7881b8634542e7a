package ledger

import "github.com/rdmad/rdmad/internal/fabric"

// Check says of a work request for the send queue whether it can be carried out by an endpoint that
// carries maxInline bytes in one, and has atomics or not: fabric.ErrInvalid or fabric.ErrNotSupported
// if not. inline says that it carries its data, which it does whether it has fabric.FlagInline or not:
// that saves the device a read of memory. Whether Local is inside a region is not looked at.
func Check(w *fabric.SendWR, maxInline int, atomics bool) (inline bool, err error) {
	asked := w.Flags&fabric.FlagInline != 0
	switch w.Op {
	case fabric.OpWrite, fabric.OpWriteImm, fabric.OpSend:
		inline = w.Local.Len > 0 && uint64(w.Local.Len) <= uint64(max(maxInline, 0))
		if asked && !inline && w.Local.Len > 0 {
			return false, fabric.ErrInvalid
		}
		return inline, nil
	case fabric.OpRead:
	case fabric.OpCompareSwap, fabric.OpFetchAdd:
		if !atomics {
			return false, fabric.ErrNotSupported
		}
		// Some devices would refuse it here, others on the other side.
		if w.Local.Len != 8 || w.RemoteAddr%8 != 0 {
			return false, fabric.ErrInvalid
		}
	default:
		return false, fabric.ErrInvalid
	}
	if asked {
		return false, fabric.ErrInvalid
	}
	return false, nil
}

// Within reports whether l is inside a region of size bytes.
func Within(l *fabric.Local, size uint64) bool {
	return l.Offset <= size && uint64(l.Len) <= size-l.Offset
}
