package trust_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/playhead/playhead/internal/trust"
)

func TestOrigins(t *testing.T) {
	if err := (trust.Origins{"https://app.example.com", "http://localhost:3000", "http://[::1]:3000", "capacitor://localhost"}).Validate(); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", "app.example.com", "https://", "https://app.example.com/", "https://*", "*", "null", "https://a@app.example.com", "https://a.example;b"} {
		if err := (trust.Origins{"https://app.example.com", bad}).Validate(); err == nil || !strings.Contains(err.Error(), strconv.Quote(bad)) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
