package objstoretest

import (
	"os/exec"
	"runtime"
	"syscall"
)

// startTied starts a process that ends with this one, however this one ends, and closes done when it has ended. The
// kernel ties the child to the thread that started it, so the thread is kept until then.
func startTied(cmd *exec.Cmd, done chan<- struct{}) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() { // owns the child; ends with it
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // it is always killed, so its status says nothing
			close(done)
		}
	}()
	return <-started
}
