package main

import (
	"bytes"
	"os"
	"runtime"
	"testing"
)

// TestABarDrawsOnlyWhenItIsTold has no end to show, on a terminal and elsewhere: nothing but who tells it has to do with the bar.
func TestABarDrawsOnlyWhenItIsTold(t *testing.T) {
	terminal, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	if !isTerminal(terminal) {
		t.Fatal("it is taken for no terminal")
	}
	for _, quiet := range []bool{false, true} {
		bar := progress(terminal, -1, "reading", quiet)
		if err := bar.Add(5); err != nil {
			t.Fatal(err)
		}
		all := make([]byte, 1<<20)
		all = all[:runtime.Stack(all, true)]
		if bytes.Contains(all, []byte("progressbar")) {
			t.Errorf("quiet %t: the bar draws by itself\n%s", quiet, all)
		}
		if err := bar.Finish(); err != nil {
			t.Fatal(err)
		}
	}
}
