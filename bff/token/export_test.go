package token

import "time"

// Expire makes the next lookup read the issuer's keys again.
func (v *Verifier) Expire() { v.issued.checked = time.Time{} }
