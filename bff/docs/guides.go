package docs

import (
	"bytes"
	"fmt"
	"html/template"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"

	"github.com/playhead/playhead/docs"
)

// source is the base URL of links to files outside the guides.
const source = "https://github.com/playhead/playhead/blob/main/"

// order lists the first guides of the menu. The others follow by name.
var order = []string{"getting-started", "players", "clients", "tokens", "pages", "webhooks", "plays", "compare", "limits", "retention", "imports", "backfill", "operate", "performance"}

type guide struct {
	Name, Title string
	content     []byte
}

func loadGuides() []guide {
	names, _ := fs.Glob(docs.Guides, "*.md")
	var all []guide
	for _, file := range names {
		content, _ := docs.Guides.ReadFile(file)
		title, _, _ := strings.Cut(strings.TrimPrefix(string(content), "# "), "\n")
		all = append(all, guide{strings.TrimSuffix(file, ".md"), title, content})
	}
	rank := func(g guide) int {
		if i := slices.Index(order, g.Name); i >= 0 {
			return i
		}
		return len(order)
	}
	slices.SortStableFunc(all, func(a, b guide) int { return rank(a) - rank(b) })
	return all
}

var markdown = goldmark.New(
	goldmark.WithExtensions(extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute))),
	goldmark.WithParserOptions(parser.WithAutoHeadingID()),
)

// accessible lets the keyboard scroll wide code, and names no column that has no name.
var accessible = strings.NewReplacer("<pre>", `<pre tabindex="0">`, "<th></th>", "<td></td>")

// page renders a guide, with a menu of all guides.
func (g guide) page(all []guide) (string, error) {
	root := markdown.Parser().Parse(text.NewReader(g.content))
	err := ast.Walk(root, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if link, ok := n.(*ast.Link); ok && entering {
			link.Destination = []byte(resolve(string(link.Destination)))
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		return "", fmt.Errorf("render guide %s: %w", g.Name, err)
	}
	var body, page bytes.Buffer
	if err := markdown.Renderer().Render(&body, g.content, root); err != nil {
		return "", fmt.Errorf("render guide %s: %w", g.Name, err)
	}
	err = layout.ExecuteTemplate(&page, "guide.html", map[string]any{
		"Name": g.Name, "Title": g.Title, "Guides": all, "Body": template.HTML(accessible.Replace(body.String())), //nolint:gosec // of our own files
	})
	return page.String(), err
}

// resolve returns the URL of a link between files, relative to a guide's page.
func resolve(to string) string {
	file, fragment, found := strings.Cut(to, "#")
	switch {
	case file == "" || strings.Contains(file, "://"):
		return to
	case strings.HasPrefix(file, "api/"):
		return "../" + strings.TrimPrefix(file, "api/")
	case path.Ext(file) == ".md" && !strings.Contains(file, "/"):
		file = strings.TrimSuffix(file, ".md")
	default:
		file = source + path.Join("docs", file)
	}
	if found {
		file += "#" + fragment
	}
	return file
}

var layout = template.Must(template.ParseFS(files, "guide.html"))
