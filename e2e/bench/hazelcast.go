package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"strconv"
	"time"

	"github.com/playhead/playhead/e2e/engine"
	"github.com/playhead/playhead/e2e/process"
)

// MeasureHazelcast sends a load to a service with a write-behind Hazelcast map of a single member, until HBase
// has every entry. An entry is acknowledged once it is in the memory of one process. An earlier run of the same
// load warms up the virtual machine.
func (e *Engines) MeasureHazelcast(ctx context.Context, l *Load, s Shape) (f Figures, err error) {
	m, err := e.startMap(ctx)
	if err != nil {
		return nil, fmt.Errorf("hazelcast: %w", err)
	}
	defer m.Kill()
	if f, err = m.measure(ctx, e, l, s); err != nil {
		return nil, fmt.Errorf("hazelcast: %w\n%s", err, m.Log())
	}
	return f, nil
}

// mapService is a running service with a map.
type mapService struct {
	*process.Process
	addr string
}

func (e *Engines) startMap(ctx context.Context) (*mapService, error) {
	table, err := e.newTable(ctx)
	if err != nil {
		return nil, err
	}
	var addrs [2]string
	var ports [2]int
	for i := range addrs {
		if addrs[i], err = process.FreeAddr(ctx); err != nil {
			return nil, err
		}
		_, port, _ := net.SplitHostPort(addrs[i])
		ports[i], _ = strconv.Atoi(port)
	}
	argv, err := engine.WriteBehind(ctx, e.Config, ports, engine.Table{ZooKeeper: e.Addr[2], Name: table})
	if err != nil {
		return nil, err
	}
	p, err := process.Start(argv[0], argv[1:]...)
	if err != nil {
		return nil, err
	}
	m := &mapService{p, addrs[0]}
	if err := process.Await(ctx, time.Minute, "the map", func(ctx context.Context) error { return listening(ctx, m.addr) }); err != nil {
		p.Kill()
		return nil, fmt.Errorf("%w\n%s", err, p.Log())
	}
	return m, nil
}

func (m *mapService) measure(ctx context.Context, e *Engines, l *Load, s Shape) (Figures, error) {
	l.EndAt(time.Now().UnixMilli())
	asks, err := m.open(ctx, l)
	if err != nil {
		return nil, err
	}
	defer asks.Close()
	if _, err := m.send(ctx, e, l, s, asks.look(0)); err != nil {
		return nil, err
	}
	_, taken, err := asks.ask(math.MaxUint32) // -1 empties the map
	if err != nil {
		return nil, err
	}
	return m.send(ctx, e, l, s, asks.look(taken))
}

func (m *mapService) send(ctx context.Context, e *Engines, l *Load, s Shape, look func(context.Context) (backlog, error)) (Figures, error) { //nolint:revive // what a turn needs
	w, err := prepare(s, l.Share(s.Workers), func([]int32) (Session, error) { return m.open(ctx, l) })
	if err != nil {
		return nil, err
	}
	defer w.close()
	t := &turn{load: l, work: w, meter: NewMeter(map[string]int{"hazelcast": m.PID(), "hbase": e.PIDs["hbase"]})}
	f, err := t.acked(ctx)
	if err == nil {
		err = t.archived(ctx, f, look)
	}
	return f, err
}

// mapSession is a connection to the service.
type mapSession struct {
	net.Conn

	last lastOf
	text []byte
}

func (m *mapService) open(ctx context.Context, l *Load) (*mapSession, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", m.addr)
	return &mapSession{Conn: c, last: newLastOf(l)}, err
}

// Send sends the last heartbeat of each key of a batch.
func (s *mapSession) Send(_ context.Context, beats []int32) error {
	cells := s.last.of(beats)
	s.text = binary.BigEndian.AppendUint32(s.text[:0], uint32(len(cells))) //nolint:gosec // a batch is small
	for _, c := range cells {
		s.text = binary.BigEndian.AppendUint32(s.text, uint32(len(c.Row)+1+len(c.Column))) //nolint:gosec // so is a key
		s.text = append(append(append(s.text, c.Row...), 0), c.Column...)
		s.text = append(binary.BigEndian.AppendUint32(s.text, uint32(len(c.Value))), c.Value...) //nolint:gosec // and a record
	}
	_, _, err := s.exchange()
	return err
}

// ask makes a request without entries.
func (s *mapSession) ask(n uint32) (waiting, taken uint64, err error) {
	s.text = binary.BigEndian.AppendUint32(s.text[:0], n)
	return s.exchange()
}

func (s *mapSession) exchange() (waiting, taken uint64, err error) {
	var answer [16]byte
	if _, err = s.Write(s.text); err == nil {
		_, err = io.ReadFull(s, answer[:])
	}
	return binary.BigEndian.Uint64(answer[:]), binary.BigEndian.Uint64(answer[8:]), err
}

// look returns a function that reports HBase's progress after a number of entries.
func (s *mapSession) look(before uint64) func(context.Context) (backlog, error) {
	return func(context.Context) (backlog, error) {
		waiting, taken, err := s.ask(0)
		return backlog{held: float64(waiting), puts: float64(taken - before)}, err
	}
}
