// Package docs embeds the guides for the page "/docs".
package docs

import "embed"

// Guides are Markdown files, one for each guide.
//
//go:embed *.md
var Guides embed.FS
