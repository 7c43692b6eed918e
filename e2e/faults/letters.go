package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history/wire"
)

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
