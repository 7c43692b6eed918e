package api

import (
	"context"

	"github.com/playhead/playhead/bff/codec"
	historyv1 "github.com/playhead/playhead/proto/history/v1"
)

func (a *api) getSettings(ctx context.Context, _ *struct{}) (*settings, error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ReadDeadline)
	defer cancel()
	resp, err := a.cfg.Service.GetSettings(ctx, &historyv1.GetSettingsRequest{Uid: uidOf(ctx)})
	return newSettings(resp.GetSettings()), err
}

func (a *api) putSettings(ctx context.Context, in *upload) (*settings, error) {
	var recording bool
	err := a.read(in, func(body []byte) (err error) {
		recording, err = codec.DecodeSettings(body)
		return err
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, a.cfg.ReadDeadline) // it may have to read the archive
	defer cancel()
	resp, err := a.cfg.Service.PutSettings(ctx, &historyv1.PutSettingsRequest{Uid: uidOf(ctx), Recording: recording})
	return newSettings(resp.GetSettings()), err
}

func newSettings(s *historyv1.Settings) *settings {
	return &settings{Recording: s.GetRecording(), PausedAt: codec.FormatTime(s.GetPausedMs())}
}
