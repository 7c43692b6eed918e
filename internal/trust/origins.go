package trust

import (
	"fmt"
	"net/url"
	"strings"
)

// Origins are sites, such as https://app.example.com, as browsers name them.
type Origins []string

// Validate refuses, as a flag, what is no origin.
func (o Origins) Validate() error {
	for _, origin := range o {
		u, err := url.Parse(origin)
		if err != nil || u.Host == "" || origin != u.Scheme+"://"+u.Host || strings.ContainsAny(u.Host, " ;,'\"*") {
			return fmt.Errorf("want an origin such as https://app.example.com, without a path, got %q", origin)
		}
	}
	return nil
}
