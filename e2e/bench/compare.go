package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"text/tabwriter"
)

// ReadRatios reads the last line of a file, which is what a run prints with --json.
func ReadRatios(path string) (r Ratios, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return r, fmt.Errorf("read ratios: %w", err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	in := json.NewDecoder(strings.NewReader(lines[len(lines)-1]))
	in.DisallowUnknownFields()
	if err := in.Decode(&r); err != nil {
		return r, fmt.Errorf("read ratios of %s: the last line: %w", path, err)
	}
	return r, nil
}

// Compare prints each ratio of two runs, and how much the second is of the first.
func Compare(out io.Writer, a, b Ratios) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RATIO\tA\tB\tB/A")
	x, y := fieldsOf(a), fieldsOf(b)
	for i := range x {
		quotient := "-"
		if p, q := x[i].value, y[i].value; p != nil && q != nil && *p != 0 {
			quotient = fmt.Sprintf("%.2f", *q / *p)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", x[i].name, numberOr(x[i].value), numberOr(y[i].value), quotient)
	}
	return w.Flush()
}

func numberOr(v *float64) string {
	if v == nil {
		return "-"
	}
	return number(*v)
}

type field struct {
	name  string
	value *float64
}

// fieldsOf returns the fields as JSON names them.
func fieldsOf(r Ratios) (all []field) {
	v := reflect.ValueOf(r)
	for i := range v.NumField() {
		all = append(all, field{v.Type().Field(i).Tag.Get("json"), v.Field(i).Interface().(*float64)})
	}
	return all
}
