// Package libopenapi has what the pulumi command names of the OpenAPI parser, and parses nothing.
//
// Only the subcommands of Pulumi Cloud's API use the parser, which takes longer to compile than all else that
// they need.
package libopenapi

import (
	"errors"

	v3 "github.com/pb33f/libopenapi/datamodel/high/v3"
)

// Document is never returned.
type Document struct{}

// Model contains a model.
type Model struct{ Model v3.Document }

var errNoParser = errors.New("gpuform built this pulumi without the parser of Pulumi Cloud's API; " +
	"use the official pulumi command")

// NewDocument returns an error that names the remedy.
func NewDocument([]byte) (*Document, error) { return nil, errNoParser }

// BuildV3Model returns the same error.
func (*Document) BuildV3Model() (*Model, error) { return nil, errNoParser }
