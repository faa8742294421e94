// Package v3 has the fields of a document that the pulumi command reads.
package v3

import (
	"github.com/pb33f/libopenapi/datamodel/high/base"
	"github.com/pb33f/libopenapi/orderedmap"
	"go.yaml.in/yaml/v4"
)

type (
	// Document is an OpenAPI document.
	Document struct {
		Components *Components
		Info       *Info
		Paths      *Paths
	}
	// Components has the schemas by name.
	Components struct {
		Schemas *orderedmap.Map[string, *base.SchemaProxy]
	}
	// Info has the version of the document.
	Info struct{ Version string }
	// Paths has the operations of each path.
	Paths struct {
		PathItems *orderedmap.Map[string, *PathItem]
	}
	// PathItem has one operation for each method.
	PathItem struct{ Get, Post, Put, Delete, Patch, Head *Operation }
	// Operation is one call.
	Operation struct {
		OperationId, Summary, Description string
		Tags                              []string
		Parameters                        []*Parameter
		RequestBody                       *RequestBody
		Responses                         *Responses
		Deprecated                        *bool
		Extensions                        *orderedmap.Map[string, *yaml.Node]
	}
	// Parameter is one argument of a call.
	Parameter struct {
		Name, In, Description string
		Required              *bool
		Schema                *base.SchemaProxy
	}
	// RequestBody has the schema of each content type.
	RequestBody struct {
		Content *orderedmap.Map[string, *MediaType]
	}
	// MediaType has a schema.
	MediaType struct{ Schema *base.SchemaProxy }
	// Responses has a response for each status code.
	Responses struct {
		Codes   *orderedmap.Map[string, *Response]
		Default *Response
	}
	// Response has the schema of each content type.
	Response struct {
		Description string
		Content     *orderedmap.Map[string, *MediaType]
	}
)
