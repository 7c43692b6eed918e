package obs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Run serves until ctx is done and open requests are answered or cut off. Add it to a group last: it tells of the
// others while they drain. An address that cannot be had, or a listener that fails, is an error.
func (a *Admin) Run(ctx context.Context) error {
	l, err := a.listen(ctx)
	if err != nil {
		return fmt.Errorf("listen for admin: %w", err)
	}
	a.cfg.Log.Info("admin listening", "addr", l.Addr().String())
	srv, served := a.server(ctx), make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve admin: %w", err)
	case <-ctx.Done():
	}
	err = a.drain(context.WithoutCancel(ctx), srv)
	if got := <-served; !errors.Is(got, http.ErrServerClosed) {
		err = errors.Join(err, got)
	}
	return err
}

func (a *Admin) drain(ctx context.Context, srv *http.Server) error {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Drain)
	defer cancel()
	err := srv.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return srv.Close()
	}
	return err
}

func (a *Admin) listen(ctx context.Context) (net.Listener, error) {
	if a.cfg.Listener != nil {
		return a.cfg.Listener, nil
	}
	return new(net.ListenConfig).Listen(ctx, "tcp", a.cfg.Addr)
}

// server ends the requests' contexts with ctx, so that a profile under way does not hold up the stop. Profiles extend
// the write timeout by their own length.
func (a *Admin) server(ctx context.Context) *http.Server {
	return &http.Server{
		Handler:           a,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      10 * time.Second,
		IdleTimeout:       time.Minute,
		ErrorLog:          slog.NewLogLogger(a.cfg.Log.Handler(), slog.LevelWarn),
	}
}
