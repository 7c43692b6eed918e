package bench

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"
	"github.com/jackc/pgx/v5"

	"github.com/playhead/playhead/history"
)

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
