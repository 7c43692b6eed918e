package connect_test

import (
	"log/slog"
	"testing"

	"github.com/playhead/playhead/internal/connect"
)

// TestSeveralAddressesAreACluster without being told.
func TestSeveralAddressesAreACluster(t *testing.T) {
	e := &connect.Engines{Log: slog.New(slog.DiscardHandler)}
	c, err := (&connect.Redis{Addrs: []string{"127.0.0.1:1", "127.0.0.1:2"}}).Connect(e)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
