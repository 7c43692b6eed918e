package connect

import (
	"bytes"
	"fmt"
	"os"
)

// secret returns the content of a file without the newline that editors add, or the
// given value when there is no file.
func secret(value, file string) (string, error) {
	if file == "" {
		return value, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("secret: %w", err)
	}
	return string(bytes.TrimSpace(text)), nil
}
