//go:build linux

package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// clockVariable makes the test binary a process that tells what it takes the
// time to be, for each line that it is given.
const clockVariable = "CHAOS_TEST_CLOCK"

func TestMain(m *testing.M) {
	if os.Getenv(clockVariable) != "" {
		began := time.Now()
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			now := time.Now()
			fmt.Println(now.UnixMilli(), now.Sub(began).Milliseconds())
		}
		return
	}
	os.Exit(m.Run())
}

func TestOneProcessClockJumpsAndNothingElse(t *testing.T) {
	if err := canJump(); err != nil {
		t.Skip(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), clockVariable+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close(); _ = cmd.Wait() }()
	answers := bufio.NewScanner(out)
	ask := func() (off, even time.Duration) {
		t.Helper()
		fmt.Fprintln(in)
		if !answers.Scan() {
			t.Fatal("the process is gone")
		}
		wall, passed, _ := strings.Cut(answers.Text(), " ")
		w, errW := strconv.ParseInt(wall, 10, 64)
		p, errP := strconv.ParseInt(passed, 10, 64)
		if errW != nil || errP != nil {
			t.Fatal(answers.Text())
		}
		return time.Until(time.UnixMilli(w)), time.Duration(p) * time.Millisecond
	}
	for _, jump := range []time.Duration{0, 24 * time.Hour, -24 * time.Hour, 5 * time.Second, 0} {
		if jump != 0 || answers.Text() != "" {
			if err := jumpClock(cmd.Process.Pid, jump); err != nil {
				t.Fatal(err)
			}
		}
		off, even := ask()
		if diff := off - jump; diff < -3*time.Second || diff > 3*time.Second {
			t.Errorf("the clock is %v from ours, not %v", off, jump)
		}
		if even < 0 || even > 10*time.Minute {
			t.Errorf("the monotonic clock has moved to %v", even)
		}
	}
}
