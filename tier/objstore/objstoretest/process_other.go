//go:build unix && !linux

package objstoretest

import "os/exec"

// startTied starts a process and closes done when it has ended.
func startTied(cmd *exec.Cmd, done chan<- struct{}) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { // owns the child; ends with it
		_ = cmd.Wait() // it is always killed, so its status says nothing
		close(done)
	}()
	return nil
}
