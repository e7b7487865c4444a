//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// spawner starts processes in network namespaces. It has an operating system
// thread of its own, for two reasons: the namespace is the thread's, and the
// kernel kills a child tied to its parent when the *thread* that started it
// ends.
type spawner struct {
	asks chan spawn
}

type spawn struct {
	cmd       *exec.Cmd
	namespace string
	done      chan error
}

func newSpawner() *spawner {
	s := &spawner{asks: make(chan spawn)}
	go func() { // ends with the process
		runtime.LockOSThread()
		for ask := range s.asks {
			ask.done <- startIn(ask.cmd, ask.namespace)
		}
	}()
	return s
}

// start starts cmd in a namespace; "" is our own. The child dies with us.
func (s *spawner) start(cmd *exec.Cmd, namespace string) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	ask := spawn{cmd, namespace, make(chan error, 1)}
	s.asks <- ask
	return <-ask.done
}

func startIn(cmd *exec.Cmd, namespace string) error {
	if namespace == "" {
		return cmd.Start()
	}
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer own.Close()
	other, err := os.Open("/var/run/netns/" + namespace)
	if err != nil {
		return err
	}
	defer other.Close()
	if err := unix.Setns(int(other.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter %s: %w", namespace, err)
	}
	err = cmd.Start()
	if back := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); back != nil {
		// The thread is lost to a namespace: nothing may be started from here.
		panic(fmt.Sprintf("leave %s: %v", namespace, back))
	}
	return err
}
