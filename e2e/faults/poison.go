package faults

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

const (
	poisonRounds = 3 // one undecodable message for every partition each
	oversize     = 6 // records
	// cellLimit is the largest cell that HBase takes in this case, in bytes: more than
	// the load's, less than one with all the metadata that a record may have.
	cellLimit = "1000"
)

// poison puts messages on the topic that no job understands, and writes records that
// HBase refuses for good, because it takes no large cells. Others flow; what is refused
// lies with the dead letters, whole and with its reason. Once HBase takes large cells
// again, driving the letters again brings the records into the archive.
func poison(ctx context.Context, t *trial) error {
	strict, err := t.engine("hbase", [2]string{"hbase.server.keyvalue.maxsize", cellLimit})
	if err != nil {
		return err
	}
	usual := t.es["hbase"]
	t.after = func() error { return strict.Kill() } // a failure must not leave it to the next case
	if err := errors.Join(usual.Kill(), strict.Start(ctx)); err != nil {
		return err
	}
	if err := t.start(ctx, spec{}); err != nil {
		return err
	}
	if err := t.underLoad(ctx, t.spoil); err != nil {
		return err
	}
	if err := t.stack.quiet(ctx, t.Limit); err != nil { // nobody waits for what is refused
		return err
	}
	if err := t.letters(ctx); err != nil {
		return err
	}
	if err := errors.Join(strict.Kill(), usual.Start(ctx)); err != nil {
		return err
	}
	t.after = nil
	if err := t.redrive(ctx); err != nil {
		return err
	}
	return t.settle(ctx)
}

// spoil sends both kinds of what cannot be archived.
func (t *trial) spoil(ctx context.Context) error {
	for range poisonRounds {
		if err := errors.Join(t.stack.publishPoison(ctx, t), pause(ctx, time.Second)); err != nil {
			return err
		}
	}
	var events []*event
	for n := range oversize {
		k := history.Key{UID: fmt.Sprintf("c8-large-%d", n), Object: history.Object{ID: "o", Type: 1}}
		events = append(events, t.book.note(history.Event{
			Key: k, Kind: history.KindStop, At: time.Now().UnixMilli(), Position: 1000, Duration: length,
			Session: "s", Device: "tv", Meta: map[string]string{"title": strings.Repeat("x", 1000)},
		}))
	}
	again, err := t.book.send(ctx, t.stack.doors[0], events)
	if err == nil && len(again) > 0 {
		err = fmt.Errorf("%d large records were not acknowledged", len(again))
	}
	return err
}

// letters checks that everything that was refused is buried, whole and with a reason.
func (t *trial) letters(ctx context.Context) error {
	letters, err := t.stack.exhume(ctx)
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

// redrive drives the letters again with the command. What still cannot be decoded must
// not hold up the others.
func (t *trial) redrive(ctx context.Context) error {
	if err := t.stack.awaitReady(ctx); err != nil {
		return err
	}
	s := t.stack
	cmd := exec.CommandContext(ctx, filepath.Join(t.Bin, "replay"), "dead", "--redis", s.es["redis"].Addr(), //nolint:gosec // our own command
		"--kafka", s.es["kafka"].Addr(), "--kafka-topic", s.name, "--kafka-group", s.name, "--kafka-dead-topic", s.dead())
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("drive the dead letters again: %w: %s", err, out)
	}
	t.res.note("%s", lastLine(string(out)))
	return nil
}

// publishPoison writes one undecodable message to every partition, of any size.
func (s *stack) publishPoison(ctx context.Context, t *trial) error {
	c := &kafka.Client{Addr: kafka.TCP(s.es["kafka"].Addr()), Timeout: 5 * time.Second}
	for p := range 8 {
		payload := make([]byte, 1+t.rand.IntN(900_000))
		_, _ = rand.Read(payload) // never fails
		payload[0] = 0xff         // no field begins like this
		resp, err := c.Produce(ctx, &kafka.ProduceRequest{
			Topic: s.name, Partition: p, RequiredAcks: kafka.RequireAll,
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

// exhume reads all dead letters and leaves them there.
func (s *stack) exhume(ctx context.Context) (letters []history.Dead, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	r := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{s.es["kafka"].Addr()}, Topic: s.dead(), MaxWait: 100 * time.Millisecond})
	defer r.Close()
	end, err := s.lastLetter(ctx)
	for err == nil && int64(len(letters)) < end {
		var m kafka.Message
		if m, err = r.ReadMessage(ctx); err != nil {
			break
		}
		var l history.Dead
		l, err = wire.Dead(m.Value)
		letters = append(letters, l)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read the dead letters: %w", err)
	}
	return letters, nil
}

func (s *stack) lastLetter(ctx context.Context) (int64, error) {
	c := &kafka.Client{Addr: kafka.TCP(s.es["kafka"].Addr()), Timeout: 5 * time.Second}
	res, err := c.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{s.dead(): {kafka.LastOffsetOf(0)}}})
	if err != nil {
		return 0, err
	}
	return res.Topics[s.dead()][0].LastOffset, res.Topics[s.dead()][0].Error
}
