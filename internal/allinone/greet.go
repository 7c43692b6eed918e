package allinone

import (
	"fmt"
	"io"
	"time"
)

// tokenLife is how long the printed token is good for.
const tokenLife = 30 * 24 * time.Hour

// Greet prints where everything is, and a token for trying things.
func (p *Process) Greet(out io.Writer, uid string) {
	token, err := p.Token(uid, tokenLife)
	if err != nil {
		token = fmt.Sprintf("(none: %v)", err)
	}
	fmt.Fprintf(out, `Playhead is running, until Ctrl-C.

  your page  http://%s/#token=%s
  HTTP API   http://%[1]s   (http://%[1]s/docs describes it)
  gRPC       %[3]s
  metrics    http://%[4]s/metrics
  data       %[5]s

A token for user %[6]q, good for 30 days:

  export TOKEN=%[2]s

Report where somebody stopped, and read it back:

  curl -H "Authorization: Bearer $TOKEN" http://%[1]s/v1/heartbeats --json '{"heartbeats":[{"object":{"id":"100","type":1},
    "kind":"stop","position_ms":90000,"duration_ms":600000,"event_time":"'$(date -u +%%FT%%TZ)'"}]}'
  curl -H "Authorization: Bearer $TOKEN" http://%[1]s/v1/history
`, p.HTTP(), token, p.RPC(), p.doors["admin"].Addr(), p.cfg.Dir, uid)
}
