package faults

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/playhead/playhead/e2e/process"
	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

// topic does to the queue what its operators may do: it deletes and recreates the topic, drops unread messages,
// and moves the jobs' offsets. The dirty marks stay.
func topic(ctx context.Context, t *trial) error {
	var steps []step
	for _, act := range []struct {
		name string
		do   step
	}{
		{"messages gone by retention", t.retention},
		{"offsets at the end", func(ctx context.Context) error { return t.moveOffsets(ctx, kafka.LastOffset) }},
		{"offsets at the beginning", func(ctx context.Context) error { return t.moveOffsets(ctx, kafka.FirstOffset) }},
		{"topic deleted", t.deleteTopic},
	} {
		steps = append(steps, wait(2*time.Second), func(ctx context.Context) error {
			if err := act.do(ctx); err != nil {
				return fmt.Errorf("%s: %w", act.name, err)
			}
			return t.anew(ctx)
		})
	}
	if err := t.run(ctx, spec{}, append(steps, wait(2*time.Second))...); err != nil {
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
		if err := inTurn(ctx, t.stack.dropMessages, wait(200*time.Millisecond)); err != nil {
			return err
		}
	}
	return nil
}

// dropMessages requests the removal of all messages; the client library lacks this call.
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
		b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(b, p), 1<<64-1) // up to the end
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

// moveOffsets stops the jobs, commits other offsets for their group, and restarts them.
func (t *trial) moveOffsets(ctx context.Context, to int64) error {
	for _, j := range t.stack.jobs {
		j.setDown(true)
		if _, err := measureEnd(ctx, j, t.stack.drain+time.Second, syscall.SIGTERM); err != nil {
			return err
		}
	}
	if err := pause(ctx, 2*time.Second); err != nil { // services announce meanwhile
		return err
	}
	err := process.Await(ctx, 30*time.Second, "the offsets to be moved", func(ctx context.Context) error {
		return t.stack.commitOffsets(ctx, to)
	})
	up(t.stack.jobs)
	return err
}

func (s *stack) commitOffsets(ctx context.Context, to int64) error {
	_, ends, err := s.offsets(ctx, s.name, s.name)
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
	resp, err := s.kafka().OffsetCommit(ctx, req)
	if err != nil {
		return err
	}
	for _, p := range resp.Topics[s.name] {
		err = errors.Join(err, p.Error)
	}
	return err
}

// deleteTopic deletes the topic and recreates it after a while.
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
		if errors.Is(err, kafka.TopicAlreadyExists) { // another process was faster
			return nil
		}
		return err
	})
}

const (
	poisonRounds = 3 // one undecodable message per partition each
	oversize     = 6 // records
	// cellLimit is the largest cell that HBase accepts in this case, in bytes: more than the load's, less than
	// one with the maximum of metadata.
	cellLimit = "1000"
)

// poison puts undecodable messages on the topic, and writes records that exceed HBase's cell limit. Other records
// must flow; refused ones must be in the dead letters, whole and with a reason. Once the limit is lifted, a
// redrive archives the records.
func poison(ctx context.Context, t *trial) error {
	strict, err := t.engine("hbase", [2]string{"hbase.server.keyvalue.maxsize", cellLimit})
	if err != nil {
		return err
	}
	usual := t.es["hbase"]
	t.after = func() error { return strict.Kill() } // also after a failure
	if err := inTurn(ctx, kill(usual), strict.Start); err != nil {
		return err
	}
	if err := t.start(ctx, spec{}); err != nil {
		return err
	}
	// Refused records must not keep the product busy.
	if err := inTurn(ctx, t.underLoad(t.spoil), t.quiet, t.letters, kill(strict), usual.Start); err != nil {
		return err
	}
	t.after = nil
	return inTurn(ctx, t.redrive, t.markClean)
}

// spoil sends both kinds: undecodable messages and oversize records.
func (t *trial) spoil(ctx context.Context) error {
	for range poisonRounds {
		if err := inTurn(ctx, t.publishPoison, wait(time.Second)); err != nil {
			return err
		}
	}
	var events []*event
	for n := range oversize {
		k := history.Key{UID: fmt.Sprintf("c8-large-%d", n), Object: history.Object{ID: "o", Type: 1}}
		events = append(events, t.book.note(history.Event{
			Key: k, Kind: history.KindStop, At: time.Now().UnixMilli(), Position: 1000, Duration: length,
			Session: "s", Device: "tv", Meta: history.NewMeta(map[string]string{"title": strings.Repeat("x", 1000)}),
		}))
	}
	again, err := t.book.send(ctx, t.stack.rpcs[0], events)
	if err == nil && len(again) > 0 {
		err = fmt.Errorf("%d large records were not acknowledged", len(again))
	}
	return err
}

// publishPoison writes one undecodable message to every partition, of any size.
func (t *trial) publishPoison(ctx context.Context) error {
	c := t.stack.kafka()
	for p := range process.Partitions {
		payload := make([]byte, 1+t.rand.IntN(900_000))
		_, _ = rand.Read(payload) // never fails
		payload[0] = 0xff         // no field begins like this
		resp, err := c.Produce(ctx, &kafka.ProduceRequest{
			Topic: t.stack.name, Partition: p, RequiredAcks: kafka.RequireAll,
			Records: kafka.NewRecordReader(kafka.Record{Time: time.Now(), Value: kafka.NewBytes(payload)}),
		})
		if err == nil {
			err = resp.Error
		}
		if err != nil {
			return fmt.Errorf("publish poison: %w", err)
		}
	}
	return nil
}

// letters checks that the dead letters have everything that was refused, whole and with a reason.
func (t *trial) letters(ctx context.Context) error {
	letters, err := t.stack.deadLetters(ctx)
	if err != nil {
		return err
	}
	messages, records := 0, make(map[history.Key]bool)
	for _, l := range letters {
		switch {
		case l.Reason == "" || l.Origin == "" || l.At == 0:
			return fmt.Errorf("a dead letter without reason, origin or time: %+v", l)
		case len(l.Payload) > 0:
			messages++
		case l.Record == nil || len(l.Record.Meta) == 0:
			return fmt.Errorf("the dead letter of %s has no record: %+v", l.Key, l)
		default:
			records[l.Key] = true
		}
	}
	t.res.note("%d undecodable messages and %d oversize records sent; %d and %d lie with the dead letters",
		8*poisonRounds, oversize, messages, len(records))
	if messages < 8*poisonRounds || len(records) != oversize {
		return errors.New("not all that was refused lies with the dead letters")
	}
	return nil
}

// redrive redrives the letters with the command. Undecodable letters must not block the others.
func (t *trial) redrive(ctx context.Context) error {
	if err := t.stack.awaitReady(ctx); err != nil {
		return err
	}
	s := t.stack
	cmd := exec.CommandContext(ctx, filepath.Join(t.Bin, "playhead"), "replay", "dead", "--redis", s.es["redis"].Addr(), //nolint:gosec // our own command
		"--kafka", s.es["kafka"].Addr(), "--kafka-topic", s.name, "--kafka-group", s.name, "--kafka-dead-topic", s.dead())
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("drive the dead letters again: %w: %s", err, out)
	}
	t.res.note("%s", lastLine(string(out)))
	return nil
}

// deadLetters reads all dead letters and leaves them in the topic.
func (s *stack) deadLetters(ctx context.Context) (letters []history.Dead, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	all, err := process.Messages(ctx, s.es["kafka"].Addr(), s.dead())
	if err != nil {
		return nil, err
	}
	for _, m := range all {
		l, err := wire.Dead(m.Value)
		if err != nil {
			return nil, err
		}
		letters = append(letters, l)
	}
	return letters, nil
}
