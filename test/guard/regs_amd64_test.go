package guard

import "golang.org/x/sys/unix"

// read looks at the registers of a thread that has stopped at a system call.
func (c *call) read() error {
	var r unix.PtraceRegs
	if err := unix.PtraceGetRegs(c.tid, &r); err != nil {
		return err
	}
	// The kernel writes this into the register of the result before the call.
	c.begins = int64(r.Rax) == -int64(unix.ENOSYS)
	c.number, c.args, c.result = int(r.Orig_rax), [3]uint64{r.Rdi, r.Rsi, r.Rdx}, int64(r.Rax)
	return nil
}
