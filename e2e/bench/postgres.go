package bench

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"
	"github.com/jackc/pgx/v5"

	"github.com/playhead/playhead/history"
)

// Postgres measures the usual alternative to Playhead: a table with a row per user and object, and an upsert that
// keeps the newest heartbeat. We drive it as well as we know how:
//
//	a batch is one statement over arrays, prepared and planned once;
//	the client drops heartbeats that a later one of the batch replaces;
//	all heartbeats of a user use one connection: no two wait for a row;
//	a user's newest are indexed by the start of the viewing, which no heartbeat changes;
//	each page has spare room: updates stay on their page ("HOT") and touch no index;
//	text is compared byte by byte, and metadata is stored as received.
type Postgres struct {
	Addr string // host:port
	PID  int
}

const table = `DROP TABLE IF EXISTS history;
CREATE TABLE history (
	began bigint NOT NULL, at bigint NOT NULL, position bigint NOT NULL, duration bigint NOT NULL,
	object_type integer NOT NULL, kind smallint NOT NULL,
	uid text COLLATE "C" NOT NULL, object_id text COLLATE "C" NOT NULL,
	session text NOT NULL, device text NOT NULL, meta text NOT NULL,
	PRIMARY KEY (uid, object_id, object_type)
) WITH (fillfactor = 50)`

// The index for a page of a user's newest records: by the start of the viewing, or by the time of the last
// heartbeat. With the second, every update also updates the index.
const (
	byBeginning = `; CREATE INDEX ON history (uid, began DESC)`
	byTime      = `; CREATE INDEX ON history (uid, at DESC)`
)

const upsert = `INSERT INTO history AS h (began, at, position, duration, object_type, kind, uid, object_id, session, device, meta)
%s ON CONFLICT (uid, object_id, object_type) DO UPDATE SET
	began = excluded.began, at = excluded.at, position = excluded.position, duration = excluded.duration, kind = excluded.kind,
	session = excluded.session, device = excluded.device, meta = excluded.meta
WHERE excluded.at >= h.at`

// The rows of a batch, and of a single heartbeat.
var (
	upsertMany = fmt.Sprintf(upsert, `SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::integer[],
	$6::smallint[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[])`)
	upsertOne = fmt.Sprintf(upsert, `VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`)
)

func (p *Postgres) connect(ctx context.Context) (*pgx.Conn, error) {
	return pgx.Connect(ctx, "postgres://postgres@"+p.Addr+"/postgres?sslmode=disable&plan_cache_mode=force_generic_plan")
}

// Measure sends a load into an empty table.
func (p *Postgres) Measure(ctx context.Context, l *Load, d Door, s Shape) (Figures, error) {
	admin, err := p.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	defer func() { _ = admin.Close(ctx) }() // nothing is lost
	create, open := table+byBeginning, p.open
	switch d {
	case Indexed:
		create = table + byTime
	case Lean:
		create, open = leanTable, p.openLean
	}
	if _, err := admin.Exec(ctx, create+"; CHECKPOINT"); err != nil {
		return nil, fmt.Errorf("postgres: create table: %w", err)
	}
	w, err := prepare(s, l.Share(s.Workers), func([]int32) (Session, error) { return open(ctx, l) })
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	defer w.close()
	t := &turn{load: l, work: w, meter: NewMeter(map[string]int{"postgres": p.PID})}
	f, err := t.acked(ctx)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	// What is due later: the pages that the turn changed reach the disk.
	if _, err := admin.Exec(ctx, "CHECKPOINT"); err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	if err := t.meter.per(f, "archived", l.Len()); err != nil {
		return nil, err
	}
	return f, p.size(ctx, admin, l, f)
}

// size adds the bytes of the table and its index, and checks that every record is there.
func (p *Postgres) size(ctx context.Context, c *pgx.Conn, l *Load, f Figures) error {
	var rows, bytes int
	if err := c.QueryRow(ctx, `SELECT count(*), pg_total_relation_size('history') FROM history`).Scan(&rows, &bytes); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	if want, _ := l.Records(); rows != want {
		return fmt.Errorf("postgres: %d records, want %d", rows, want)
	}
	f["disk"] = float64(bytes) / float64(rows)
	return nil
}

// pgSession is a connection with its statement, and the reusable columns of a batch.
type pgSession struct {
	conn *pgx.Conn
	last lastOf

	began, at, position, duration     []int64
	typ                               []int32
	kind                              []int16
	uid, object, session, device, met []string
}

func (p *Postgres) open(ctx context.Context, l *Load) (Session, error) {
	c, err := p.connect(ctx)
	if err != nil {
		return nil, err
	}
	for name, sql := range map[string]string{"many": upsertMany, "one": upsertOne} {
		if _, err := c.Prepare(ctx, name, sql); err != nil {
			return nil, fmt.Errorf("prepare %s: %w", name, err)
		}
	}
	return &pgSession{conn: c, last: newLastOf(l)}, nil
}

// Send stores a batch in its own transaction.
func (s *pgSession) Send(ctx context.Context, beats []int32) error {
	s.fold(beats)
	if len(s.at) == 1 {
		_, err := s.conn.Exec(ctx, "one", s.began[0], s.at[0], s.position[0], s.duration[0], s.typ[0], s.kind[0],
			s.uid[0], s.object[0], s.session[0], s.device[0], s.met[0])
		return err
	}
	_, err := s.conn.Exec(ctx, "many", s.began, s.at, s.position, s.duration, s.typ, s.kind, s.uid, s.object, s.session, s.device, s.met)
	return err
}

// fold takes the last heartbeat of each key of a batch.
func (s *pgSession) fold(beats []int32) {
	s.began, s.at, s.position, s.duration, s.typ, s.kind = s.began[:0], s.at[:0], s.position[:0], s.duration[:0], s.typ[:0], s.kind[:0]
	s.uid, s.object, s.session, s.device, s.met = s.uid[:0], s.object[:0], s.session[:0], s.device[:0], s.met[:0]
	for e := range s.last.events(beats) {
		s.began = append(s.began, e.At-e.Position) // players name a viewing by its start
		s.at, s.position, s.duration = append(s.at, e.At), append(s.position, e.Position), append(s.duration, e.Duration)
		s.typ, s.kind = append(s.typ, int32(e.Key.Object.Type)), append(s.kind, int16(e.Kind)) //nolint:gosec // small
		s.uid, s.object = append(s.uid, e.Key.UID), append(s.object, e.Key.Object.ID)
		s.session, s.device = append(s.session, e.Session), append(s.device, e.Device)
		s.met = append(s.met, s.last.load.metadata[e.Key.Object].text)
	}
}

// Close ends the connection.
func (s *pgSession) Close() error { return s.conn.Close(context.Background()) }

// The least that a table of resume points can be: numbers for user and object, and a value that PostgreSQL does not
// look into. Its only index is the primary key, so it has no list of a user's newest records.
const leanTable = `DROP TABLE IF EXISTS history;
CREATE TABLE history (
	uid bigint NOT NULL, object bigint NOT NULL, at bigint NOT NULL, value bytea NOT NULL, PRIMARY KEY (uid, object)
) WITH (fillfactor = 50)`

const leanUpsert = `INSERT INTO history AS h (uid, object, at, value)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bytea[])
ON CONFLICT (uid, object) DO UPDATE SET at = excluded.at, value = excluded.value WHERE excluded.at >= h.at`

// leanSession is a connection with the reusable columns of a batch.
type leanSession struct {
	*pgx.Conn

	last            lastOf
	uid, object, at []int64
	value           [][]byte
}

func (p *Postgres) openLean(ctx context.Context, l *Load) (Session, error) {
	c, err := p.connect(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := c.Prepare(ctx, "lean", leanUpsert); err != nil {
		return nil, fmt.Errorf("prepare: %w", err)
	}
	return &leanSession{Conn: c, last: newLastOf(l)}, nil
}

// Send stores the last heartbeat of each key of a batch in its own transaction.
func (s *leanSession) Send(ctx context.Context, beats []int32) error {
	s.uid, s.object, s.at, s.value = s.uid[:0], s.object[:0], s.at[:0], s.value[:0]
	for e := range s.last.events(beats) {
		s.uid = append(s.uid, number64(e.Key.UID))
		s.object = append(s.object, number64(e.Key.Object.String()))
		s.at = append(s.at, e.At)
		s.value = append(s.value, s.valueOf(&e))
	}
	_, err := s.Exec(ctx, "lean", s.uid, s.object, s.at, s.value)
	return err
}

func (s *leanSession) valueOf(e *history.Event) []byte {
	v := binary.AppendVarint(nil, e.Position)
	v = binary.AppendVarint(append(v, byte(e.Kind)), e.Duration)
	for _, text := range []string{e.Session, e.Device, s.last.load.metadata[e.Key.Object].text} {
		v = append(binary.AppendUvarint(v, uint64(len(text))), text...)
	}
	return v
}

// number64 stands for the number that the application has of a user or an object.
func number64(text string) int64 { return int64(xxhash.Sum64String(text)) } //nolint:gosec // any number

// Close ends the connection.
func (s *leanSession) Close() error { return s.Conn.Close(context.Background()) }
