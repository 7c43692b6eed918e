//go:build e2e

package bench_test

import (
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/playhead/playhead/e2e/pipeline"
	"github.com/playhead/playhead/e2e/process"
)

// profile writes CPU profiles of the services' first ten seconds, and Redis's command statistics, to the folder
// PLAYHEAD_BENCH_PROFILES, if set. finish waits for them; -cpuprofile is for the driver.
func profile(b *testing.B, s *pipeline.Stack) (finish func()) {
	dir := os.Getenv("PLAYHEAD_BENCH_PROFILES")
	if dir == "" {
		return func() {}
	}
	c := goredis.NewClient(&goredis.Options{Addr: s.Engines.Redis})
	if err := c.ConfigResetStat(b.Context()).Err(); err != nil {
		b.Error(err)
	}
	var wg sync.WaitGroup
	for name, p := range map[string]*pipeline.Process{"service": s.Services[0], "job": s.Jobs[0]} {
		wg.Go(func() {
			resp, err := process.Get(b.Context(), "http://"+p.Admin+"/debug/pprof/profile?seconds=10")
			if err != nil {
				b.Error(err)
				return
			}
			defer resp.Body.Close()
			save(b, filepath.Join(dir, name+".prof"), resp.Body)
		})
	}
	return func() {
		wg.Wait()
		defer c.Close()
		stats, err := c.Info(b.Context(), "commandstats").Result()
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "commandstats"), []byte(stats), 0o644)
		}
		if err != nil {
			b.Error(err)
		}
	}
}

func save(b *testing.B, path string, r io.Reader) {
	f, err := os.Create(path)
	if err != nil {
		b.Error(err)
		return
	}
	defer f.Close()
	if _, err := io.Copy(f, r); err != nil {
		b.Error(err)
	}
}
