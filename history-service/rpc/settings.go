package rpc

import (
	"context"
	"errors"
	"fmt"

	"github.com/playhead/playhead/history"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

// GetSettings reads what a user has decided. A cold user is warmed first; a read that
// fails is an error, never "recording".
func (s *Server) GetSettings(ctx context.Context, req *historyv1.GetSettingsRequest) (*historyv1.GetSettingsResponse, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	u, err := s.user(ctx, req.GetUid())
	if err != nil {
		return nil, status(fmt.Errorf("get settings: %w", err))
	}
	return &historyv1.GetSettingsResponse{Settings: settings(u.Pause)}, nil
}

// PutSettings switches recording off or on. A cold user is warmed first, because what
// the archive knows of a pause would otherwise come after this and undo it.
func (s *Server) PutSettings(ctx context.Context, req *historyv1.PutSettingsRequest) (*historyv1.PutSettingsResponse, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	if err := s.cfg.Timeless(); err != nil {
		return nil, status(fmt.Errorf("put settings: %w", err))
	}
	pause, err := s.switched(ctx, req.GetUid(), req.GetRecording())
	if err != nil {
		return nil, status(fmt.Errorf("put settings: %w", err))
	}
	s.decided.note(decision{uid: req.GetUid(), pause: pause})
	s.cfg.Aggregate.Announce(req.GetUid())
	s.notify.UserChanged(req.GetUid())
	return &historyv1.PutSettingsResponse{Settings: settings(pause)}, nil
}

// switched switches recording off or on, and again where somebody else did in between.
func (s *Server) switched(ctx context.Context, uid string, recording bool) (history.Pause, error) {
	for range maxTries {
		u, err := s.user(ctx, uid)
		if err != nil {
			return history.Pause{}, err
		}
		newest, err := s.newest(ctx, uid, 0)
		if err != nil {
			return history.Pause{}, err
		}
		pause := u.Pause.Switched(recording, s.nowMS(), newest)
		if err := s.cfg.Cache.Pause(ctx, uid, u.Pause, pause); !errors.Is(err, history.ErrConflict) {
			return pause, err
		}
	}
	return history.Pause{}, fmt.Errorf("others are always first: %w", history.ErrUnavailable)
}

// newest returns the time of the newest record of a type, 0 for all, that the cache shows; 0
// without any. A decision without a time of its own is not earlier: the clock of who wrote
// that may be ahead.
func (s *Server) newest(ctx context.Context, uid string, typ uint32) (int64, error) {
	page, err := s.cfg.Cache.List(ctx, uid, history.Query{Type: typ, Limit: 1})
	if err != nil || len(page.Items) == 0 {
		return 0, err
	}
	return page.Items[0].Record.Version.Time(), nil
}

// user returns the state of a user who is warm.
func (s *Server) user(ctx context.Context, uid string) (history.User, error) {
	if err := history.ValidateUID(uid); err != nil {
		return history.User{}, err
	}
	entries, err := s.known(ctx, []history.Key{history.UserKey(uid)})
	if err != nil {
		return history.User{}, err
	}
	return entries[0].User, nil
}

func settings(p history.Pause) *historyv1.Settings {
	if p.On() {
		return &historyv1.Settings{PausedMs: p.Since}
	}
	return &historyv1.Settings{Recording: true}
}
