package imports_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/playhead/playhead/internal/imports"
)

// TestSniff proposes maps that read the first rows.
func TestSniff(t *testing.T) {
	for name, tt := range map[string]struct{ file, form, proposed, first string }{
		"known form":               {"Title,Date\n\"A\",\"13/2/26\"\n", "Netflix viewing history", "", "netflix:A"},
		"names":                    {"User ID;Video;Watched at;Seconds watched;Length (min)\n7;x;13.02.2026 20:00;60;90\n", "", "user=User ID,object=Video,time=Watched at:02.01.2006 15:04,played=Seconds watched:s", "x"},
		"units":                    {"uid,id,ts,position_ms,duration_ms,title\n7,x,1790000000000,6000,9000,The X\n", "", "user=uid,object=id,time=ts:ms,position=position_ms:ms,duration=duration_ms:ms,title=title", "x"},
		"no header":                {"7,x,1790000000\n8,y,1790000001\n", "", "user=1,object=2,time=3:s", "x"},
		"lines":                    {`{"video":"x","time":"2026-10-01T20:00:00Z","length":"1:30:00"}` + "\n", "", "duration=length:hms,time=time:iso,object=video", "x"},
		"a time of another name":   {"user;film;gesehen_am;dauer\nann;x;13.02.2026 20:00;60\n", "", "user=user,object=film,time=gesehen_am:02.01.2006 15:04", "x"},
		"two times of other names": {"film;von;bis\nx;13.02.2026 20:00;13.02.2026 21:00\n", "", "", ""},
		"no object":                {"a,b\n1,2\n", "", "", ""},
		"ambiguous":                {"id,time\nx,01/02/2026\n", "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "f")
			if err := os.WriteFile(path, []byte(tt.file), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := imports.Sniff(t.Context(), imports.Options{Now: now}, path)
			if tt.first == "" {
				if !errors.Is(err, imports.ErrUnknown) || got.Map != "" || len(got.Columns) < 2 {
					t.Errorf("got %+v, %v", got, err)
				}
				return
			}
			if err != nil || got.Form != tt.form || got.Map != tt.proposed || len(got.First) == 0 || got.First[0].Event.Key.Object.ID != tt.first {
				t.Errorf("got %+v, %v, want %q", got, err, tt.proposed)
			}
		})
	}
}
