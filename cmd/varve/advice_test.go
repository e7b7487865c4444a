package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
)

func TestABrokerThatDoesNotAnswerIsNamedWhenOthersDo(t *testing.T) {
	c := client{bootstrap: "seed:9092"}
	silent := kadm.ShardError{Err: &net.OpError{Op: "read", Err: io.ErrUnexpectedEOF}, Broker: kadm.BrokerDetail{NodeID: 2, Host: "two", Port: 9093}}
	err := c.explain(&kadm.ShardErrors{Name: "ListGroups", Errs: []kadm.ShardError{silent}})
	if said := err.Error(); !strings.HasPrefix(said, "broker 2 at two:9093 does not answer (") || strings.Contains(said, "seed") || strings.Contains(said, "shard") {
		t.Errorf("it says %s", said)
	}
	if !someAnswered(&kadm.ShardErrors{Errs: []kadm.ShardError{silent}}) || someAnswered(&kadm.ShardErrors{AllFailed: true}) || someAnswered(errors.New("no")) || !someAnswered(nil) {
		t.Error("who has answered is not known")
	}
	silent.Broker = kadm.BrokerDetail{NodeID: -1}
	err = c.explain(&kadm.ShardErrors{Name: "ListGroups", AllFailed: true, Errs: []kadm.ShardError{silent}})
	if !strings.HasPrefix(err.Error(), "no broker answers at seed:9092") {
		t.Errorf("nobody has answered, and it says %v", err)
	}
}

func TestAnErrorWithTwoCausesIsOne(t *testing.T) {
	var said bytes.Buffer
	one := fmt.Errorf("%w, because %w", errors.New("this"), errors.New("that"))
	tellError(&said, nil, nil, errors.Join(one, errors.New("more")))
	if want := "varve: this, because that\nvarve: more\n"; said.String() != want {
		t.Errorf("it says %q, not %q", said.String(), want)
	}
}
