package faults

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/tsuna/gohbase"
	"github.com/tsuna/gohbase/hrpc"

	"github.com/playhead/playhead/e2e/process"
)

// The drills do what docs/backup.md says, and note how long each step takes.

// timed takes a step and notes its time.
func (t *trial) timed(what string, do step) step {
	return func(ctx context.Context) error {
		began := time.Now()
		if err := do(ctx); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		t.res.note("%s: %v", what, time.Since(began).Round(10*time.Millisecond))
		return nil
	}
}

// drillRedis loses the machine of Redis under load, and brings it back: on a copy of its files, and empty.
func drillRedis(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{blind: true}); err != nil {
		return err
	}
	redis, aof, elsewhere := t.redisFiles()
	moved := func(context.Context) error {
		return errors.Join(os.RemoveAll(elsewhere), os.Rename(aof, elsewhere), os.CopyFS(aof, os.DirFS(elsewhere)))
	}
	if err := t.underLoad(
		wait(5*time.Second), kill(redis), t.timed("its files copied", moved), t.sized("its files", aof),
		t.timed("Redis started on them", redis.Start), t.timed("the next acknowledgement", t.acknowledges), wait(3*time.Second),
	)(ctx); err != nil {
		return err
	}
	if err := inTurn(ctx, t.timed("all archived", t.quiet), t.markClean); err != nil {
		return err
	}
	return inTurn(ctx, t.underLoad(
		wait(2*time.Second), t.timed("Redis started empty", t.loseRedis), t.timed("the next acknowledgement", t.acknowledges), wait(3*time.Second),
	), t.timed("all archived", t.quiet), t.markClean)
}

// acknowledges waits for a report that was sent from now on.
func (t *trial) acknowledges(ctx context.Context) error {
	before := t.book.count()
	return process.Await(ctx, 30*time.Second, "an acknowledgement", func(context.Context) error {
		if t.book.count() == before {
			return errors.New("nothing is acknowledged")
		}
		return nil
	})
}

// sized notes the size of a directory.
func (t *trial) sized(what, dir string) step {
	return func(context.Context) error {
		var bytes int64
		err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			info, err := d.Info()
			if err == nil {
				bytes += info.Size()
			}
			return err
		})
		t.res.note("%s: %.1f MiB", what, float64(bytes)/(1<<20))
		return err
	}
}

// drillKafka loses all data of Kafka under load: topics, messages and offsets.
func drillKafka(ctx context.Context, t *trial) error {
	broker := t.es["kafka"]
	anew := func(ctx context.Context) error {
		return errors.Join(os.RemoveAll(filepath.Join(broker.Nodes[0].Dir, "logs")), broker.Start(ctx))
	}
	err := t.run(ctx, spec{}, wait(3*time.Second), kill(broker), t.anew, wait(3*time.Second), t.timed("Kafka started empty", anew),
		t.timed("all topics made again", t.topicsExist), t.anew, wait(3*time.Second))
	if err != nil {
		return err
	}
	swept, err := total(ctx, t.stack.jobs, "playhead_job_swept_keys_total")
	t.res.note("%.0f keys were left to the sweep; all archived %v after the last report", swept, time.Duration(t.res.QuietMS)*time.Millisecond)
	return err
}

func (t *trial) topicsExist(ctx context.Context) error {
	p := t.stack.product()
	want := []string{p.Name, p.DeadTopic(), p.FirstTopic()}
	return process.Await(ctx, 60*time.Second, "the topics", func(ctx context.Context) error {
		meta, err := t.stack.kafka().Metadata(ctx, &kafka.MetadataRequest{Topics: want})
		if err != nil {
			return err
		}
		for _, topic := range meta.Topics {
			err = errors.Join(err, topic.Error)
		}
		return err
	})
}

// drillHBase restores a snapshot that lacks the latest reports and removals, and gives the table what Redis has.
func drillHBase(ctx context.Context, t *trial) error {
	if err := t.start(ctx, spec{}); err != nil {
		return err
	}
	load := t.underLoad(wait(4 * time.Second))
	if err := inTurn(ctx, load, t.quiet); err != nil {
		return err
	}
	before := t.book.count()
	if err := inTurn(ctx, t.timed("snapshot", t.stack.snapshot), t.anew, load, t.quiet); err != nil {
		return err
	}
	t.res.note("%d acknowledged and archived after the snapshot", t.book.count()-before)
	for _, j := range t.stack.jobs {
		j.setDown(true)
		if _, err := measureEnd(ctx, j, t.stack.drain+time.Second, syscall.SIGTERM); err != nil {
			return err
		}
	}
	start := func(ctx context.Context) error {
		up(t.stack.jobs)
		return t.stack.awaitReady(ctx)
	}
	if err := inTurn(ctx, t.anew, t.underLoad(wait(time.Second), t.timed("snapshot restored", t.stack.restoreSnapshot), t.timed("jobs started", start)), t.quiet); err != nil {
		return err
	}
	missing, err := t.older(ctx)
	if err != nil {
		return err
	}
	t.res.note("%d of %d records are older in the table than in Redis", missing, len(t.book.stories))
	if missing == 0 {
		return errors.New("the restored table lacks nothing")
	}
	if err := t.verify(ctx); err == nil {
		return errors.New("replay verify finds no difference")
	}
	repair := func(ctx context.Context) error { return t.verify(ctx, "--repair") }
	return inTurn(ctx, t.timed("replay verify --repair", repair), t.quiet, t.verified, t.markClean)
}

func (t *trial) verified(ctx context.Context) error { return t.verify(ctx) }

// verify compares the table with Redis by the command.
func (t *trial) verify(ctx context.Context, more ...string) error {
	s := t.stack
	args := []string{
		"replay", "verify", "--from", "cache:", "--to", "archive:" + s.name + "@" + s.es["hbase"].Addr(), "--redis", s.storeAddr(),
	}
	_, err := t.command(ctx, append(args, more...)...)
	return err
}

// command runs a command of `playhead` and returns its output.
func (t *trial) command(ctx context.Context, args ...string) (string, error) {
	what := strings.Join(args[:2], " ")
	out, err := exec.CommandContext(ctx, filepath.Join(t.Bin, "playhead"), args...).CombinedOutput() //nolint:gosec // our own command
	if err != nil {
		return string(out), fmt.Errorf("%s: %w: %s", what, err, out)
	}
	return string(out), nil
}

// tables returns the existing tables of the stack, users' rows first: what moves into segments meanwhile is in both.
func (s *stack) tables(ctx context.Context) (names []string, err error) {
	list, err := hrpc.NewListTableNames(ctx, hrpc.ListRegex(s.name+".*"))
	if err != nil {
		return nil, err
	}
	found, err := s.admin().ListTableNames(list)
	for _, table := range found {
		names = append(names, string(table.GetQualifier()))
	}
	slices.Sort(names)
	if err == nil && len(names) == 0 {
		err = errors.New("no table")
	}
	return names, err
}

func (s *stack) admin() gohbase.AdminClient { return gohbase.NewAdminClient(s.es["hbase"].Addr()) } // its Close panics

func (s *stack) snapshot(ctx context.Context) error {
	return s.eachTable(ctx, func(table string) error {
		call, err := hrpc.NewSnapshot(ctx, table+"_snapshot", table)
		if err == nil {
			err = s.admin().CreateSnapshot(call)
		}
		return err
	})
}

// restoreSnapshot takes the tables back to their snapshots. The enabling waits for the end of the restore.
func (s *stack) restoreSnapshot(ctx context.Context) error {
	return s.eachTable(ctx, func(table string) error {
		admin, name := s.admin(), []byte(table)
		if err := admin.DisableTable(hrpc.NewDisableTable(ctx, name)); err != nil {
			return err
		}
		call, err := hrpc.NewSnapshot(ctx, table+"_snapshot", table)
		if err == nil {
			err = admin.RestoreSnapshot(call)
		}
		if err != nil {
			return err
		}
		return admin.EnableTable(hrpc.NewEnableTable(ctx, name))
	})
}

func (s *stack) eachTable(ctx context.Context, do func(table string) error) error {
	names, err := s.tables(ctx)
	for _, table := range names {
		if err == nil {
			if err = do(table); err != nil {
				err = fmt.Errorf("%s: %w", table, err)
			}
		}
	}
	return err
}

// accessControl makes HBase ask for rights. Calls are made by whatever name the client gives: root is the superuser.
var accessControl = [][2]string{
	{"hbase.security.authorization", "true"},
	{"hbase.superuser", "root"},
	{"hbase.coprocessor.master.classes", accessController},
	{"hbase.coprocessor.region.classes", accessController},
	{"hbase.coprocessor.regionserver.classes", accessController},
}

const accessController = "org.apache.hadoop.hbase.security.access.AccessController"

// drillRights runs the product on an HBase that asks for rights. With those of docs/operate.md it works. Without, it
// says what to grant, and archives once it may.
func drillRights(ctx context.Context, t *trial) error {
	strict, err := t.engine("hbase", accessControl...)
	if err != nil {
		return err
	}
	usual := t.es["hbase"]
	t.after = func() error { t.es["hbase"] = usual; return strict.Kill() }
	if err := inTurn(ctx, kill(usual), strict.Start); err != nil {
		return err
	}
	t.es["hbase"] = strict
	t.newStack(spec{})
	if err := inTurn(ctx, t.stack.refusedWithout, t.stack.grant("@default", "RWC")); err != nil {
		return err
	}
	if err := t.start(ctx, spec{jobFlags: []string{"--compact-above", "100", "--summary", "43800h"}}); err != nil {
		return err
	}
	s, load := t.stack, t.underLoad(wait(3*time.Second))
	if err := inTurn(ctx, load, t.quiet); err != nil {
		return err
	}
	tables, err := s.tables(ctx)
	if err != nil {
		return err
	}
	t.res.note("with RWC on @default the processes made %s", strings.Join(tables, ", "))
	var only []step
	for _, table := range tables {
		only = append(only, s.grant(table, "RWC"))
	}
	if err := inTurn(ctx, append(only, s.grant("@default", ""))...); err != nil {
		return err
	}
	for _, u := range s.backends() { // they find their tables
		u.kill()
	}
	return inTurn(ctx, s.awaitReady, load, t.quiet, t.verified, t.userCommand, t.doctorSays(""),
		s.grant(s.name, "RW"), t.doctorSays("grant 'playhead', 'RWC', '"+s.name+"'"), load, t.quiet,
		s.grant(s.name, "R"), t.anew, t.underLoad(t.degradedBy("AccessDeniedException")),
		s.grant(s.name, "RWC"), t.quiet, t.markClean)
}

// refusedWithout starts a job without rights: it must end and name the grant.
func (s *stack) refusedWithout(ctx context.Context) error {
	admin, err := process.FreeAddr(ctx)
	if err != nil {
		return err
	}
	argv := s.product().Command("history-job", admin, s.cacheFlags()...)
	return refuses(argv, 30*time.Second, "grant 'playhead', 'RWC', '"+s.name+"'")
}

// refuses starts a command that must end within a time and say why.
func refuses(argv []string, within time.Duration, want string) error {
	p, err := process.Start(argv[0], argv[1:]...)
	if err != nil {
		return err
	}
	defer p.Kill()
	select {
	case <-p.Done():
	case <-time.After(within):
		return fmt.Errorf("%s runs, want a refusal with %q: %s", argv[0], want, p.Log())
	}
	if !strings.Contains(p.Log(), want) {
		return fmt.Errorf("%s says %q, want %q", argv[0], lastLine(p.Log()), want)
	}
	return nil
}

// doctorSays waits until `playhead doctor` finds something about the rights; "" is nothing.
func (t *trial) doctorSays(want string) step {
	s := t.stack
	var admins []string
	for _, u := range s.units() {
		admins = append(admins, u.admin)
	}
	return func(ctx context.Context) error {
		return process.Await(ctx, 30*time.Second, "the doctor", func(ctx context.Context) error {
			out, err := t.command(ctx, "doctor", "--engines", "--admin", strings.Join(admins, ","), "--redis", s.storeAddr(), "--kafka", s.es["kafka"].Addr(),
				"--kafka-topic", s.name, "--kafka-dead-topic", s.dead(), "--kafka-first-of-day-topic", s.product().FirstTopic(),
				"--hbase", s.es["hbase"].Addr(), "--hbase-table", s.name)
			if err == nil && (want == "" && strings.Contains(out, "grant") || !strings.Contains(out, want)) {
				err = fmt.Errorf("doctor says %s, want %q", out, want)
			}
			return err
		})
	}
}

// degradedBy waits until a job says why HBase is away.
func (t *trial) degradedBy(reason string) step {
	return func(ctx context.Context) error {
		return process.Await(ctx, 30*time.Second, "a job to name "+reason, func(ctx context.Context) error {
			err := t.stack.jobs[0].readyNow(ctx)
			if err == nil {
				return errors.New("it is ready")
			}
			if !strings.Contains(err.Error(), reason) {
				return err
			}
			return nil
		})
	}
}

// userCommand looks at one user in all places.
func (t *trial) userCommand(ctx context.Context) error {
	s, uid := t.stack, ""
	for k := range t.book.stories {
		uid = k.UID
		break
	}
	_, err := t.command(ctx, "replay", "user", uid, "--redis", s.storeAddr(), "--kafka", s.es["kafka"].Addr(), "--kafka-topic", s.name,
		"--kafka-dead-topic", s.dead(), "--kafka-first-of-day-topic", s.product().FirstTopic(), "--hbase", s.es["hbase"].Addr(), "--hbase-table", s.name)
	return err
}

// grant gives the user of Playhead rights on a table or a namespace, as the shell's command does; "" takes them. It
// writes the table of rights as the superuser.
func (s *stack) grant(on, rights string) step {
	return func(ctx context.Context) error {
		client := gohbase.NewClient(s.es["hbase"].Addr())
		defer client.Close()
		acl := map[string]map[string][]byte{"l": {"playhead": []byte(rights)}}
		var err error
		if rights == "" {
			var del *hrpc.Mutate
			if del, err = hrpc.NewDelStr(ctx, "hbase:acl", on, acl); err == nil {
				_, err = client.Delete(del)
			}
		} else {
			var put *hrpc.Mutate
			if put, err = hrpc.NewPutStr(ctx, "hbase:acl", on, acl); err == nil {
				_, err = client.Put(put)
			}
		}
		if err != nil {
			return fmt.Errorf("grant %q on %s: %w", rights, on, err)
		}
		return nil
	}
}
