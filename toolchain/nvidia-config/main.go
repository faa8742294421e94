// Command nvidia-config reads device-plugin and mig-parted configurations with NVIDIA's own types and says what
// they understood. It never touches a GPU and never writes a file.
//
// Without arguments it answers line-delimited JSON on stdin until that ends:
//
//	{"id":1,"kind":"device-plugin","yaml":"..."} -> {"id":1,"ok":true,"config":{...},"lost":[],"error":null}
//
// `nvidia-config check KIND FILE` checks one file: exit 0 when it parses and no key is lost, 1 otherwise.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
)

type request struct {
	ID   int64  `json:"id"`
	Kind string `json:"kind"`
	YAML string `json:"yaml"`
}

type response struct {
	ID       int64           `json:"id"`
	OK       bool            `json:"ok"`
	Config   json.RawMessage `json:"config"`
	Strategy string          `json:"strategy,omitempty"`
	Lost     []string        `json:"lost"`
	Error    *string         `json:"error"`
}

// maxLine bounds one request; a ConfigMap holds at most 1 MiB, JSON quoting may double it.
const maxLine = 4 << 20

func main() {
	switch {
	case len(os.Args) == 1:
		if err := serve(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "nvidia-config:", err)
			os.Exit(1)
		}
	case len(os.Args) == 4 && os.Args[1] == "check":
		os.Exit(check(os.Args[2], os.Args[3]))
	default:
		fmt.Fprintln(os.Stderr, "usage: nvidia-config                  answer JSON lines on stdin")
		fmt.Fprintln(os.Stderr, "       nvidia-config check KIND FILE  KIND: "+strings.Join(kinds(), " | "))
		os.Exit(2)
	}
}

func kinds() []string {
	names := make([]string, 0, len(parsers))
	for name := range parsers {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

func serve(in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	encoder := json.NewEncoder(out)
	for lines.Scan() {
		var asked request
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			return fmt.Errorf("request is not JSON: %w", err)
		}
		if err := encoder.Encode(answer(asked)); err != nil {
			return err
		}
	}
	return lines.Err()
}

func answer(asked request) response {
	failed := func(err error) response {
		text := err.Error()
		return response{ID: asked.ID, Lost: []string{}, Error: &text}
	}
	parse, known := parsers[asked.Kind]
	if !known {
		return failed(fmt.Errorf("unknown kind %q; known: %s", asked.Kind, strings.Join(kinds(), ", ")))
	}
	result, err := parse([]byte(asked.YAML))
	if err != nil {
		return failed(err)
	}
	lost, err := lostKeys([]byte(asked.YAML), parse, result.written)
	if err != nil {
		return failed(err)
	}
	return response{ID: asked.ID, OK: true, Config: result.config, Strategy: result.strategy, Lost: lost}
}

func check(kind, file string) int {
	raw, err := os.ReadFile(file)
	if err != nil {
		fmt.Fprintln(os.Stderr, "nvidia-config:", err)
		return 1
	}
	result := answer(request{Kind: kind, YAML: string(raw)})
	if result.Error != nil {
		fmt.Fprintf(os.Stderr, "%s: %s\n", file, *result.Error)
		return 1
	}
	for _, key := range result.Lost {
		fmt.Fprintf(os.Stderr, "%s: %s: NVIDIA's types drop this key\n", file, key)
	}
	if len(result.Lost) > 0 {
		return 1
	}
	fmt.Println(string(result.Config))
	return 0
}
