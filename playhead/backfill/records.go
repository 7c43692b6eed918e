package backfill

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/history-service/view"
	"github.com/playhead/playhead/internal/run"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// maxRecords bounds the records of a request.
const maxRecords = 200

// fold sends records and users' states to the service. Clear marks go first: nothing up to them may come back.
func (s *Service) fold(ctx context.Context, items []Item, results []Result) error {
	byUser := make(map[string][]int)
	for i := range items {
		if items[i].Event != nil {
			continue
		}
		uid, _ := history.UserOf(items[i].Key.UID) // the service knows the class
		byUser[uid] = append(byUser[uid], i)
	}
	for uid, of := range byUser {
		u := &userRecords{service: s, uid: uid, items: items, results: results}
		if err := u.send(ctx, of); err != nil {
			return fmt.Errorf("import records of %q: %w", uid, err)
		}
	}
	return nil
}

// userRecords are the items of one user.
type userRecords struct {
	service *Service
	uid     string
	items   []Item
	results []Result
}

func (u *userRecords) send(ctx context.Context, of []int) error {
	var records []int
	for _, i := range of {
		var err error
		switch it := &u.items[i]; {
		case it.User != nil:
			err = u.service.again(ctx, func(ctx context.Context) error { return u.state(ctx, it.User) })
			u.results[i].Outcome = New
		case it.Record.Deleted():
			err = u.service.again(ctx, func(ctx context.Context) error { return u.remove(ctx, it) })
			u.results[i].Outcome = New
		default:
			records = append(records, i)
		}
		if err != nil {
			return err
		}
	}
	for len(records) > 0 {
		some := records[:min(len(records), maxRecords)]
		if err := u.service.again(ctx, func(ctx context.Context) error { return u.records(ctx, some) }); err != nil {
			return err
		}
		records = records[len(some):]
	}
	return nil
}

// again calls do until it succeeds, or was in vain for the patience.
func (s *Service) again(ctx context.Context, do func(context.Context) error) error {
	limit := run.Default(s.Patience, patience)
	backoff := run.Backoff{First: 50 * time.Millisecond, Longest: 2 * time.Second}
	for began := time.Now(); ; {
		call, cancel := context.WithTimeout(ctx, limit)
		err := do(call)
		cancel()
		switch status.Code(err) {
		case codes.OK, codes.InvalidArgument, codes.Unimplemented, codes.PermissionDenied, codes.Unauthenticated:
			return err
		}
		if ctx.Err() != nil || time.Since(began) > limit || !backoff.Sleep(ctx) {
			return err
		}
	}
}

// state sends clear marks and an active pause.
func (u *userRecords) state(ctx context.Context, state *history.User) error {
	client := historyv1.NewHistoryServiceClient(u.service.Conn)
	for typ, until := range state.Cleared {
		if _, err := client.Clear(ctx, &historyv1.ClearRequest{Uid: u.uid, Type: typ, UntilMs: until}); err != nil {
			return err
		}
	}
	if !state.Pause.On() {
		return nil
	}
	_, err := client.PutSettings(ctx, &historyv1.PutSettingsRequest{Uid: u.uid, Recording: false})
	return err
}

func (u *userRecords) remove(ctx context.Context, it *Item) error {
	o := it.Key.Object
	_, err := historyv1.NewHistoryServiceClient(u.service.Conn).Delete(ctx, &historyv1.DeleteRequest{
		Uid: u.uid, Objects: []*historyv1.Object{{Id: o.ID, Type: o.Type}}, AtMs: it.Record.Version.Time(),
	})
	return err
}

// records imports whole records.
func (u *userRecords) records(ctx context.Context, of []int) error {
	req := &historyv1.ImportRequest{Uid: u.uid}
	for _, i := range of {
		whole, err := view.Whole(u.items[i].Record)
		if err != nil {
			return status.Error(codes.InvalidArgument, err.Error())
		}
		o := u.items[i].Key.Object
		req.Records = append(req.Records, &historyv1.ImportedRecord{Object: &historyv1.Object{Id: o.ID, Type: o.Type}, Record: whole})
	}
	resp, err := historyv1.NewHistoryServiceClient(u.service.Conn).Import(ctx, req)
	if err != nil {
		return err
	}
	if got := len(resp.GetStatuses()); got != len(of) {
		return fmt.Errorf("%w: %d statuses for %d records", errMismatch, got, len(of))
	}
	for n, st := range resp.GetStatuses() {
		if st == historyv1.Status_STATUS_UNAVAILABLE {
			return errAgain
		}
		outcome, known := statusOutcomes[st]
		if !known {
			return fmt.Errorf("%w: status %v", errMismatch, st)
		}
		u.results[of[n]].Outcome = outcome
	}
	for _, r := range resp.GetRefusals() {
		u.results[of[r.GetIndex()]].Reason = r.GetField() + ": " + r.GetReason()
	}
	return nil
}
