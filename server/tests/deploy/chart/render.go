// Renders a Helm chart with the template language that Helm uses, and those of its functions that the chart uses:
// go run render.go CHART_FOLDER < values.json
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

func main() {
	var data map[string]interface{}
	must(json.NewDecoder(os.Stdin).Decode(&data))
	all := template.New("chart").Option("missingkey=error")
	all.Funcs(template.FuncMap{
		"quote": func(value interface{}) string { return fmt.Sprintf("%q", fmt.Sprint(value)) },
		"default": func(other, value interface{}) interface{} {
			if value == nil || value == "" {
				return other
			}
			return value
		},
		"toYaml": func(value interface{}) (string, error) {
			text, err := json.Marshal(value) // JSON is YAML
			return string(text), err
		},
		"nindent": func(spaces int, text string) string {
			pad := "\n" + strings.Repeat(" ", spaces)
			return pad + strings.ReplaceAll(text, "\n", pad)
		},
		"include": func(name string, dot interface{}) (string, error) {
			var out bytes.Buffer
			err := all.ExecuteTemplate(&out, name, dot)
			return out.String(), err
		},
	})
	files, err := filepath.Glob(filepath.Join(os.Args[1], "templates", "*"))
	must(err)
	_, err = all.ParseFiles(files...)
	must(err)
	for _, file := range files {
		if strings.HasSuffix(file, ".yaml") {
			fmt.Println("---")
			must(all.ExecuteTemplate(os.Stdout, filepath.Base(file), data))
		}
	}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
