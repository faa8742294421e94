// Command nvml-mock says whether MIG slices can be had, by the tables of go-nvml's mock GPUs. It never touches a GPU.
//
// It answers line-delimited JSON on stdin until that ends; "start" may be left out of what is to be created:
//
//	{"id":1,"gpu":"a30","live":[{"profile":"1g.6gb","start":1}],"create":[{"profile":"2g.12gb"}]}
//	-> {"id":1,"ok":true,"placed":[{"profile":"2g.12gb","start":2,"size":2}],"error":null}
//	{"id":2,"gpu":"a30","table":true} -> {"id":2,"ok":true,"profiles":[...],"error":null}
//
// The mocks know every profile and its places, and their devices create whatever they are asked for. So the table
// is theirs and the counting is done here; with "blind":true nothing is counted, and the mock is asked alone.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

type slice struct {
	Profile string  `json:"profile"`
	Start   *uint32 `json:"start"`
}

type request struct {
	ID     int64   `json:"id"`
	GPU    string  `json:"gpu"`
	Table  bool    `json:"table"`
	Blind  bool    `json:"blind"`
	Live   []slice `json:"live"`
	Create []slice `json:"create"`
}

type response struct {
	ID       int64     `json:"id"`
	OK       bool      `json:"ok"`
	Profiles []profile `json:"profiles,omitempty"`
	Placed   []placed  `json:"placed,omitempty"`
	Error    *string   `json:"error"`
}

const maxLine = 1 << 20

func main() {
	if len(os.Args) != 1 {
		fmt.Fprintln(os.Stderr, "usage: nvml-mock  answers JSON lines on stdin")
		os.Exit(2)
	}
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "nvml-mock:", err)
		os.Exit(1)
	}
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
	found := response{ID: asked.ID}
	gpu, err := open(asked.GPU)
	switch {
	case err != nil:
	case asked.Table:
		found.Profiles = gpu.profiles
	default:
		found.Placed, err = gpu.create(asked.Live, asked.Create, asked.Blind)
	}
	if err != nil {
		text := err.Error()
		found.Error = &text
	}
	found.OK = err == nil
	return found
}
