package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/playhead/playhead/history"
	"github.com/playhead/playhead/internal/connect"
	"github.com/playhead/playhead/internal/obs"
	"github.com/playhead/playhead/internal/run"
	"github.com/playhead/playhead/playhead/audit"
	"github.com/playhead/playhead/playhead/backfill"
)

type auditFlags struct {
	To     string        `placeholder:"DOOR" help:"Where its users report and read: edge:URL, as players do, or service (see --service)." default:"service"`
	Read   []string      `placeholder:"STORE" help:"Stores to compare too: cache: for Redis, archive:TABLE@ZOOKEEPER for HBase."`
	Within time.Duration `help:"How late the archive may be." default:"5m" positive:""`
	Users  int           `help:"Number of synthetic users." default:"10" positive:""`
	Every  time.Duration `help:"Time between two operations." default:"1s" positive:""`
	Name   string        `help:"Name in the uids, playhead-audit-NAME-0 and so on; another one for each audit of a history." default:"1"`
	Type   uint32        `help:"Type of the synthetic objects." default:"1" positive:""`
	For    time.Duration `help:"End after this time and the wait for the archive, with an error if anything was found; 0 is never."`
	Again  time.Duration `help:"Wait before a difference is looked at once more." default:"1s" positive:""`
	Rules  []string      `sep:";" placeholder:"RULES" help:"Rules of types, as the service has them; for --read."`

	Admin     string        `help:"Address of health, metrics and profiles." default:"127.0.0.1:7073"`
	Secret    string        `name:"token-secret-file" help:"File with the secret that the edge's tokens are signed with." type:"existingfile"`
	Audience  string        `help:"Audience that the edge's tokens must be made out to."`
	Patience  time.Duration `help:"How long an operation waits for its answer, before it is tried again." default:"10s" positive:""`
	LogLevel  string        `help:"debug, info, warn or error." default:"info"`
	LogFormat string        `help:"text or json." default:"text"`

	remote
	connect.Redis
}

// Help returns the introduction to --help.
func (*auditFlags) Help() string {
	return `Runs beside production: synthetic users report, delete, clear and watch again, and what was acknowledged is compared with what the door, ` +
		`cache and archive have. A lost report, a resurrected delete or a late archive is a metric (playhead_audit_findings_total) and a log line. ` +
		`The uids begin with ` + audit.Prefix + `; leave them out of statistics. See docs/operate.md.`
}

// auditCommand runs an audit until it is stopped, or --for has passed.
func auditCommand(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	var f auditFlags
	if err := run.Parse("playhead replay audit", &f, args, getenv, out); err != nil {
		return err
	}
	log, err := obs.NewLogger(os.Stderr, f.LogLevel, f.LogFormat)
	if err != nil {
		return err
	}
	if err := history.ValidateUID(audit.Prefix + f.Name); err != nil {
		return fmt.Errorf("--name: %w", err)
	}
	cfg := audit.Config{Name: f.Name, Users: f.Users, Type: f.Type, Every: f.Every, For: f.For, Again: f.Again, Logger: log}
	stores := &opened{ctx: ctx, flags: &copyFlags{Rules: f.Rules, Redis: f.Redis}}
	closeDoor, err := f.door(&cfg)
	if err == nil {
		defer closeDoor()
		err = f.places(stores, &cfg)
	}
	if err == nil {
		err = f.run(ctx, cfg)
	}
	return errors.Join(err, stores.close())
}

// door sets the door of --to.
func (f *auditFlags) door(cfg *audit.Config) (closing func(), err error) {
	url, isEdge := strings.CutPrefix(f.To, "edge:")
	switch {
	case isEdge && url != "":
		c := &copyFlags{Secret: f.Secret, Audience: f.Audience, Patience: f.Patience}
		e, err := c.edge(url, 0)
		cfg.Door = audit.Edge{Edge: e}
		return func() {}, err
	case f.To == "service":
		if err := f.check(); err != nil {
			return nil, err
		}
		conn, err := f.dial()
		if err != nil {
			return nil, err
		}
		s := backfill.NewService(conn, 1)
		s.Patience = f.Patience
		cfg.Door = audit.Service{Service: s, Patience: f.Patience}
		return func() { s.Close(); _ = conn.Close() }, nil
	}
	return nil, fmt.Errorf("--to: want edge:URL or service, got %q", f.To)
}

// places sets the places of --read.
func (f *auditFlags) places(stores *opened, cfg *audit.Config) error {
	if err := stores.parseRules(false); err != nil {
		return err
	}
	for _, read := range f.Read {
		table, isArchive := strings.CutPrefix(read, "archive:")
		switch {
		case read == "cache:":
			c, err := stores.redis()
			if err != nil {
				return fmt.Errorf("--read: %w", err)
			}
			cfg.Places = append(cfg.Places, audit.InCache(c, stores.rules, f.Type))
		case isArchive:
			a, err := stores.table(table, true)
			if err != nil {
				return fmt.Errorf("--read: %w", err)
			}
			cfg.Places = append(cfg.Places, audit.InArchive(a, stores.rules, f.Type, f.Within))
		default:
			return fmt.Errorf("--read: want cache: or archive:TABLE@ZOOKEEPER, got %q", read)
		}
	}
	return nil
}

// run audits and serves the metrics.
func (f *auditFlags) run(ctx context.Context, cfg audit.Config) error {
	lis, err := run.Listen(ctx, "admin", f.Admin)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	registry := obs.NewRegistry()
	cfg.Registry = registry
	auditor := audit.New(cfg)
	g := run.Group{Log: cfg.Logger}
	g.Add("audit", 0, func(ctx context.Context) error {
		defer end()
		return auditor.Run(ctx)
	})
	g.Add("admin", 0, obs.NewAdmin(obs.AdminConfig{Listener: lis, Metrics: registry, Terminate: run.Terminate, Log: cfg.Logger}).Run)
	return g.Run(ctx)
}
