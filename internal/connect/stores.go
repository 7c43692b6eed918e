package connect

import (
	"context"

	"github.com/playhead/playhead/history/hbase"
	"github.com/playhead/playhead/history/kafka"
	"github.com/playhead/playhead/history/redis"
	"github.com/playhead/playhead/internal/run"
)

// Flags say where everything is that a service and a job both need.
type Flags struct {
	Redis
	Kafka
	HBase
}

// Stores are the adapters to it.
type Stores struct {
	*Engines

	Redis      *redis.Cache
	Kafka      *kafka.Queue
	FirstOfDay *kafka.FirstOfDay
	HBase      *hbase.Archive
}

// Connect adds all of it to the engines of a process, and asks them for the first time.
// It fails for what is final; what does not answer is waited for by [Engines.Run].
func (f *Flags) Connect(ctx context.Context, e *Engines) (s *Stores, err error) {
	s = &Stores{Engines: e}
	if s.Redis, err = f.Redis.Connect(e); err != nil {
		return nil, err
	}
	if s.Kafka, err = f.Kafka.Connect(e); err != nil {
		return nil, err
	}
	if s.FirstOfDay, err = f.ConnectFirst(e); err != nil {
		return nil, err
	}
	if s.HBase, err = f.HBase.Connect(e); err != nil {
		return nil, err
	}
	return s, e.First(ctx)
}

// Closing adds to a group what closes them.
func (s *Stores) Closing(g *run.Group) {
	g.Add("queue", 0, run.Closing(s.Kafka.Close))
	g.Add("first of day", 0, run.Closing(s.FirstOfDay.Close))
	g.Add("cache", 0, run.Closing(s.Redis.Close))
	g.Add("archive", 0, run.Closing(s.HBase.Close))
}
