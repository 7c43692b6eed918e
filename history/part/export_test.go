package part

// Seal gives changed bytes of a chunk or of metadata the checksum that they need.
func Seal(b []byte) []byte {
	if len(b) < sumSize {
		return b
	}
	return seal(b[: len(b)-sumSize : len(b)-sumSize])
}

// Unchecked encodes metadata as it is.
func Unchecked(m *Metadata) []byte { return m.encode(nil) }
