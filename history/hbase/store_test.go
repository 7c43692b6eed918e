package hbase_test

import (
	"context"
	"errors"

	"github.com/tsuna/gohbase"
	"github.com/tsuna/gohbase/hrpc"

	"github.com/playhead/playhead/history/hbase"
	"github.com/playhead/playhead/history/hbase/hbasefake"
)

type (
	store  = hbasefake.Store
	column = hbasefake.Column
)

var newStore = hbasefake.New

// process runs one action with its own archive, and stops before each HBase call.
type process struct {
	gohbase.Client
	at       chan struct{}
	resume   chan fate
	done     chan error
	ended    bool
	killed   bool
	switches bool // stopped before a check-and-put
	result   error
}

// begin starts a process, up to its first call.
func begin(client gohbase.Client, c hbase.Config, do func(a *hbase.Archive) error) *process {
	p := &process{Client: client, at: make(chan struct{}), resume: make(chan fate), done: make(chan error, 1)}
	a := hbase.NewCompacting(p, c)
	go func() { p.done <- do(a) }()
	p.wait()
	return p
}

func (p *process) wait() {
	select {
	case <-p.at:
	case p.result = <-p.done:
		p.ended = true
	}
}

// next decides the fate of the pending call, and waits for the next one.
func (p *process) next(f fate) {
	if !p.ended {
		p.resume <- f
		p.wait()
	}
}

// finish runs a process to its end.
func (p *process) finish() error {
	for !p.ended {
		p.next(made)
	}
	return p.result
}

// fate is the result of a call.
type fate int

const (
	made      fate = iota
	lost           // neither this call nor any later one is made
	forgotten      // made but unanswered; no later call is made
)

var errKilled = errors.New("killed")

func (p *process) step() (do, answer bool) {
	if p.killed {
		return false, false
	}
	p.at <- struct{}{}
	f := <-p.resume
	p.killed = f != made
	return f != lost, f == made
}

// SendBatch implements [gohbase.Client].
func (p *process) SendBatch(ctx context.Context, batch []hrpc.Call) (results []hrpc.RPCResult, ok bool) {
	results = make([]hrpc.RPCResult, len(batch))
	do, answer := p.step()
	if do {
		results, ok = p.Client.SendBatch(ctx, batch)
	}
	for i := range results {
		if !answer {
			results[i] = hrpc.RPCResult{Error: errKilled}
		}
	}
	return results, ok && answer
}

// CheckAndPut implements [gohbase.Client].
func (p *process) CheckAndPut(m *hrpc.Mutate, family, qualifier string, expected []byte) (won bool, err error) {
	p.switches = true
	do, answer := p.step()
	p.switches = false
	if do {
		won, err = p.Client.CheckAndPut(m, family, qualifier, expected)
	}
	if !answer {
		return false, errKilled
	}
	return won, err
}

// Scan implements [gohbase.Client].
func (p *process) Scan(s *hrpc.Scan) hrpc.Scanner {
	if do, _ := p.step(); do {
		return p.Client.Scan(s)
	}
	return failed{}
}

type failed struct{}

// Next implements [hrpc.Scanner].
func (failed) Next() (*hrpc.Result, error) { return nil, errKilled }

// Close implements [hrpc.Scanner].
func (failed) Close() error { return nil }
