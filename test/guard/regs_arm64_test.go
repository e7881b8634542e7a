package guard

import "golang.org/x/sys/unix"

// generalRegisters is the set that PTRACE_GETREGSET is asked for (NT_PRSTATUS).
const generalRegisters = 1

// read looks at the registers of a thread that has stopped at a system call.
func (c *call) read() error {
	var r unix.PtraceRegsArm64
	if err := unix.PtraceGetRegSetArm64(c.tid, generalRegisters, &r); err != nil {
		return err
	}
	// For as long as the thread is stopped here, register 7 says where it is.
	c.begins = r.Regs[7] == 0
	c.number, c.args, c.result = int(r.Regs[8]), [3]uint64{r.Regs[0], r.Regs[1], r.Regs[2]}, int64(r.Regs[0])
	return nil
}
