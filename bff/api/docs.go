package api

import (
	"bytes"
	_ "embed"
	"html/template"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

//go:embed docs.html
var docsPage string

// docs renders the document as one page without scripts: an edge is often where no
// browser reaches a content network, and where none should load code from one.
func docs(oapi *huma.OpenAPI) ([]byte, error) {
	page, err := template.New("docs").Funcs(template.FuncMap{"type": typeName, "body": bodyOf}).Parse(docsPage)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = page.Execute(&out, map[string]any{
		"Info": oapi.Info, "Operations": operations(oapi), "Schemas": oapi.Components.Schemas.Map(),
	})
	return out.Bytes(), err
}

// operations returns all of them by path, readers first.
func operations(oapi *huma.OpenAPI) (all []*huma.Operation) {
	for _, item := range oapi.Paths {
		for _, op := range []*huma.Operation{item.Get, item.Post, item.Put, item.Delete} {
			if op != nil {
				all = append(all, op)
			}
		}
	}
	order := []string{http.MethodGet, http.MethodPost, http.MethodDelete}
	slices.SortFunc(all, func(a, b *huma.Operation) int {
		if a.Path != b.Path {
			return strings.Compare(a.Path, b.Path)
		}
		return slices.Index(order, a.Method) - slices.Index(order, b.Method)
	})
	return all
}

func bodyOf(content map[string]*huma.MediaType) *huma.Schema {
	for _, media := range content {
		return media.Schema
	}
	return nil
}

// typeName is a schema in a word or two.
func typeName(s *huma.Schema) string {
	switch {
	case s == nil:
		return ""
	case s.Ref != "":
		return s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]
	case len(s.OneOf) > 0:
		return typeName(s.OneOf[0]) + " or " + typeName(s.OneOf[1])
	case s.Items != nil:
		return "list of " + typeName(s.Items)
	case s.Format == "date-time":
		return "time"
	}
	return s.Type
}
