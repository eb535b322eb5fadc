package rdq_test

import (
	"os/exec"
	"syscall"
)

// dieWithTest ends a process also when the test ends without its cleanup, as at a time limit.
func dieWithTest(process *exec.Cmd) {
	process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
