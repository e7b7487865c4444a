//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"

	"github.com/varvelog/varve/integration/history"
)

// process is a client library in a process of its own, which speaks JSON lines
// (integration/clients/golang/worker). A crash is a kill.
type process struct {
	spawn     *spawner
	binary    string
	arguments []string // before the brokers' addresses
	bootstrap []string
	label     string // "": sarama

	cmd     *exec.Cmd
	in      io.WriteCloser
	answers chan answer // closed when the process is gone
}

// ask and answer are the lines.
type ask struct {
	Op     string           `json:"op"`
	Key    string           `json:"key,omitempty"`
	Values []int64          `json:"values,omitempty"`
	Bytes  int              `json:"bytes,omitempty"`
	From   map[string]int64 `json:"from,omitempty"`
	Topics []string         `json:"topics,omitempty"`
	Group  string           `json:"group,omitempty"`
	Millis int64            `json:"millis,omitempty"`

	ID     string         `json:"id,omitempty"` // transactional
	Steps  []history.Step `json:"steps,omitempty"`
	Commit bool           `json:"commit,omitempty"`
}

type answer struct {
	Outcome history.Type          `json:"outcome"`
	Offsets []int64               `json:"offsets"`
	Reads   map[string][][2]int64 `json:"reads"`
	Error   string                `json:"error"`

	Steps   []history.Step `json:"steps"`
	Decided int64          `json:"decided"` // nanoseconds from the begin of the transaction to the wish to commit
}

func (p *process) name() string {
	if p.label != "" {
		return p.label
	}
	return "sarama"
}

func (p *process) start() error {
	cmd := exec.Command(p.binary, append(slices.Clone(p.arguments), strings.Join(p.bootstrap, ","))...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.spawn.start(cmd, ""); err != nil {
		return err
	}
	answers := make(chan answer)
	p.cmd, p.in, p.answers = cmd, in, answers
	go func() { // ends with the process
		defer func() { _ = cmd.Wait() }()
		defer close(answers)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			var a answer
			if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
				a = answer{Outcome: history.Info, Error: err.Error()}
			}
			answers <- a
		}
	}()
	return nil
}

var errWorkerGone = errors.New("the client's process is gone")

// call asks and waits for the answer. After ctx the process is killed: an
// answer that comes later would be taken for the next one's.
func (p *process) call(ctx context.Context, a ask) (answer, error) {
	if p.cmd == nil {
		if err := p.start(); err != nil {
			return answer{}, err
		}
	}
	if err := json.NewEncoder(p.in).Encode(a); err != nil {
		p.crash()
		return answer{}, errors.Join(errWorkerGone, err)
	}
	select {
	case got, open := <-p.answers:
		if !open {
			p.crash()
			return answer{}, errWorkerGone
		}
		if got.Error != "" {
			return got, errors.New(got.Error)
		}
		return got, nil
	case <-ctx.Done():
		p.crash()
		return answer{}, ctx.Err()
	}
}

func (p *process) send(ctx context.Context, key string, values []int64, size int) sent {
	got, err := p.call(ctx, ask{Op: "send", Key: key, Values: values, Bytes: size})
	if len(got.Offsets) != len(values) {
		return sent{history.Info, unsentOffsets(len(values)), err}
	}
	return sent{got.Outcome, got.Offsets, err}
}

func (p *process) assign(ctx context.Context, from map[string]int64) error {
	_, err := p.call(ctx, ask{Op: "assign", From: from})
	return err
}

func (p *process) subscribe(ctx context.Context, topics []string, group string) error {
	_, err := p.call(ctx, ask{Op: "subscribe", Topics: topics, Group: group})
	return err
}

func (p *process) poll(ctx context.Context) ([]history.Step, error) {
	got, err := p.call(ctx, ask{Op: "poll", Millis: pollTime.Milliseconds()})
	var steps []history.Step
	for key, reads := range got.Reads {
		steps = append(steps, history.Step{F: history.Poll, Key: key, Offset: -1, Reads: reads})
	}
	return steps, err
}

func (p *process) commit(ctx context.Context, really bool) (committed, error) {
	if !really {
		return committed{}, nil
	}
	_, err := p.call(ctx, ask{Op: "commit"})
	return committed{}, err // it does not say which offsets
}

func (p *process) crash() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	_ = p.in.Close()
	for range p.answers { // the reader waits for the process
	}
	p.cmd = nil
}
