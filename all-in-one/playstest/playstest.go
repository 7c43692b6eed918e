// Package playstest judges streams of plays: a client reports completions, logs what was acknowledged, and compares.
package playstest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// Client reports what users complete, repeats a third, takes some back, and removes a tenth. It logs what is
// acknowledged.
type Client struct {
	tb    testing.TB
	uid   string // of users, with a number behind it
	began int64
	n     int64
	log   Log
}

// New returns a client whose users have a name of their own.
func New(tb testing.TB, uid string) *Client {
	return &Client{tb: tb, uid: uid, began: time.Now().Add(-14 * 24 * time.Hour).UnixMilli()}
}

// Service is the service that a client reports to at present.
type Service func() historyv1.HistoryServiceClient

// patience bounds the wait for an acknowledgement.
const patience = time.Minute

// until calls do until it is acknowledged. Nothing that was not is left behind.
func (c *Client) until(service Service, do func(context.Context, historyv1.HistoryServiceClient) error) {
	c.tb.Helper()
	for end := time.Now().Add(patience); ; {
		ctx, cancel := context.WithTimeout(c.tb.Context(), 5*time.Second)
		err := do(ctx, service())
		cancel()
		switch {
		case err == nil:
			return
		case time.Now().After(end):
			c.tb.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Act takes the next of its steps. Two weeks pass with a thousand steps, so most reports are late uploads.
func (c *Client) Act(service Service) {
	c.tb.Helper()
	c.n++
	at := c.began + c.n*14*86_400 // of 1,000 steps the last is now
	k := history.Key{UID: fmt.Sprint(c.uid, c.n%5), Object: history.Object{ID: fmt.Sprint("film", c.n%7), Type: 1}}
	session := fmt.Sprint("session", c.n)
	done := beat(k, historyv1.Kind_KIND_FINISH, at, session, 100_000)
	switch c.n % 10 {
	case 3: // more of it was left
		k.Object.ID = session
		done.ObjectId = session
		later := beat(k, historyv1.Kind_KIND_PROGRESS, at+5000, session, 900_000)
		c.report(service, done)
		c.report(service, later)
		c.log.Gone(k, session, at)
		return
	case 6: // deleted
		k.Object.ID = session
		done.ObjectId = session
		c.report(service, done)
		c.until(service, func(ctx context.Context, s historyv1.HistoryServiceClient) error {
			_, err := s.Delete(ctx, &historyv1.DeleteRequest{Uid: k.UID, Objects: []*historyv1.Object{{Id: session, Type: 1}}, AtMs: at + 1})
			return err
		})
		c.log.Gone(k, session, at)
		return
	case 9: // cleared, by a user who comes back
		k.UID = c.uid + "-leaver"
		done.Uid = k.UID
		c.report(service, done)
		c.until(service, func(ctx context.Context, s historyv1.HistoryServiceClient) error {
			_, err := s.Clear(ctx, &historyv1.ClearRequest{Uid: k.UID, UntilMs: at + 1})
			return err
		})
		c.log.Gone(k, session, at)
		return
	}
	c.report(service, done)
	if c.n%3 == 0 { // the answer was lost, and it went on a little
		c.report(service, done, beat(k, historyv1.Kind_KIND_FINISH, at+3000, session, 100_000))
	}
	c.log.Stays(k, session, at)
}

func (c *Client) report(service Service, beats ...*historyv1.Heartbeat) {
	c.tb.Helper()
	c.until(service, func(ctx context.Context, s historyv1.HistoryServiceClient) error {
		resp, err := s.Apply(ctx, &historyv1.ApplyRequest{Heartbeats: beats})
		if err == nil && slices.Contains(resp.GetStatuses(), historyv1.Status_STATUS_UNAVAILABLE) {
			err = history.ErrUnavailable
		}
		return err
	})
}

func beat(k history.Key, kind historyv1.Kind, at int64, session string, duration int64) *historyv1.Heartbeat { //nolint:revive // the fields of a heartbeat
	return &historyv1.Heartbeat{
		Uid: k.UID, ObjectId: k.Object.ID, ObjectType: k.Object.Type, Kind: kind, EventTimeMs: at,
		PositionMs: 100_000, DurationMs: duration, Session: session,
	}
}

// Judge compares messages with the log, and wants deletes and clears among them.
func (c *Client) Judge(messages []history.PlayMessage) error {
	kinds, err := c.log.Judge(slices.DeleteFunc(slices.Clone(messages), func(m history.PlayMessage) bool { return !c.knows(m.Key.UID) }))
	c.tb.Logf("messages: %v", kinds)
	if err == nil && (kinds[history.PlaysDeleted] == 0 || kinds[history.PlaysCleared] == 0) {
		err = fmt.Errorf("messages %v: want deletes and clears", kinds)
	}
	return err
}

func (c *Client) knows(uid string) bool { return len(uid) > len(c.uid) && uid[:len(c.uid)] == c.uid }
