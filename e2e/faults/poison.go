package faults

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/playhead/playhead/history"
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
