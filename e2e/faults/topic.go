package faults

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/playhead/playhead/e2e/process"
)

// topic does to the queue what its owners may: deletes the topic and makes it again, drops
// messages before a job has read them, and moves the jobs' offsets by hand. The marks stand.
func topic(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{}); err != nil {
		return err
	}
	acts := []struct {
		name string
		do   func(context.Context) error
	}{
		{"messages gone by retention", t.retention},
		{"offsets at the end", func(ctx context.Context) error { return t.moveOffsets(ctx, kafka.LastOffset) }},
		{"offsets at the beginning", func(ctx context.Context) error { return t.moveOffsets(ctx, kafka.FirstOffset) }},
		{"topic deleted", t.deleteTopic},
	}
	err := t.underLoad(ctx, func(ctx context.Context) error {
		for _, a := range acts {
			if err := errors.Join(pause(ctx, 2*time.Second), a.do(ctx)); err != nil {
				return fmt.Errorf("%s: %w", a.name, err)
			}
			t.load.epoch.Add(1)
		}
		return pause(ctx, 2*time.Second)
	})
	if err != nil {
		return err
	}
	if err := t.settle(ctx); err != nil {
		return err
	}
	swept, err := total(ctx, t.stack.jobs, "playhead_job_swept_keys_total")
	t.res.note("%.0f keys were left to the sweep", swept)
	return err
}

func (s *stack) kafka() *kafka.Client {
	return &kafka.Client{Addr: kafka.TCP(s.es["kafka"].Addr()), Timeout: 10 * time.Second}
}

// retention drops all messages of the topic again and again, for a while.
func (t *trial) retention(ctx context.Context) error {
	for range 15 {
		if err := errors.Join(t.stack.dropMessages(ctx), pause(ctx, 200*time.Millisecond)); err != nil {
			return err
		}
	}
	return nil
}

// dropMessages asks for the removal of all messages, which the client cannot ask for.
func (s *stack) dropMessages(ctx context.Context) error {
	const deleteRecords, version = 21, 1
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.es["kafka"].Addr())
	if err != nil {
		return err
	}
	defer conn.Close()
	text := func(b []byte, s string) []byte {
		return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...) //nolint:gosec // short
	}
	b := binary.BigEndian.AppendUint16(make([]byte, 4), deleteRecords)
	b = binary.BigEndian.AppendUint16(b, version)
	b = text(binary.BigEndian.AppendUint32(b, 1), "faults")
	b = text(binary.BigEndian.AppendUint32(b, 1), s.name)
	b = binary.BigEndian.AppendUint32(b, 8)
	for p := range uint32(8) {
		b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(b, p), 1<<64-1) // to the end
	}
	b = binary.BigEndian.AppendUint32(b, 5000)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4)) //nolint:gosec // short
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	if _, err := conn.Write(b); err != nil {
		return fmt.Errorf("drop messages: %w", err)
	}
	_, err = conn.Read(make([]byte, 4))
	return err
}

// moveOffsets stops the jobs, commits other offsets for their group, and starts them again.
func (t *trial) moveOffsets(ctx context.Context, to int64) error {
	for _, j := range t.stack.jobs {
		j.setDown(true)
		if _, err := ends(ctx, j, t.stack.drain+time.Second, syscall.SIGTERM); err != nil {
			return err
		}
	}
	if err := pause(ctx, 2*time.Second); err != nil { // services announce meanwhile
		return err
	}
	err := process.Await(ctx, 30*time.Second, "the offsets to be moved", func(ctx context.Context) error {
		return t.stack.commitOffsets(ctx, to)
	})
	for _, j := range t.stack.jobs {
		j.up()
	}
	return err
}

func (s *stack) commitOffsets(ctx context.Context, to int64) error {
	c := s.kafka()
	_, ends, err := s.offsets(ctx)
	if err != nil {
		return err
	}
	req := &kafka.OffsetCommitRequest{GroupID: s.name, GenerationID: -1, Topics: map[string][]kafka.OffsetCommit{}}
	for p, end := range ends {
		if to == kafka.FirstOffset {
			end = 0
		}
		req.Topics[s.name] = append(req.Topics[s.name], kafka.OffsetCommit{Partition: p, Offset: end})
	}
	resp, err := c.OffsetCommit(ctx, req)
	if err != nil {
		return err
	}
	for _, p := range resp.Topics[s.name] {
		err = errors.Join(err, p.Error)
	}
	return err
}

// deleteTopic deletes the topic and, a while later, makes it again.
func (t *trial) deleteTopic(ctx context.Context) error {
	c := t.stack.kafka()
	del, err := c.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{t.stack.name}})
	if err == nil {
		err = del.Errors[t.stack.name]
	}
	if err := errors.Join(err, pause(ctx, 4*time.Second)); err != nil {
		return err
	}
	return process.Await(ctx, 30*time.Second, "the topic to be made again", func(ctx context.Context) error {
		made, err := c.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{Topic: t.stack.name, NumPartitions: 8, ReplicationFactor: 1}}})
		if err == nil {
			err = made.Errors[t.stack.name]
		}
		if errors.Is(err, kafka.TopicAlreadyExists) { // somebody else was faster
			return nil
		}
		return err
	})
}
