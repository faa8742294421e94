// Package base has the fields of a schema that the pulumi command reads.
package base

import (
	"github.com/pb33f/libopenapi/orderedmap"
	"go.yaml.in/yaml/v4"
)

type (
	// Schema is a type of a request or a response.
	Schema struct {
		Type, Required               []string
		Format, Description, Pattern string
		AllOf, AnyOf, OneOf          []*SchemaProxy
		Properties                   *orderedmap.Map[string, *SchemaProxy]
		Items, AdditionalProperties  *SchemaOrBool
		Discriminator                *Discriminator
		Enum                         []*yaml.Node
		Default                      *yaml.Node
		Nullable, ReadOnly           *bool
		MinLength, MaxLength         *int64
		Minimum, Maximum, MultipleOf *float64
		Extensions                   *orderedmap.Map[string, *yaml.Node]
	}
	// SchemaProxy refers to a schema.
	SchemaProxy struct{}
	// SchemaOrBool is a schema, or whether anything is allowed.
	SchemaOrBool struct{ A *SchemaProxy }
	// Discriminator names the property that tells schemas apart.
	Discriminator struct {
		PropertyName string
		Mapping      *orderedmap.Map[string, string]
	}
	// Low is the parsed form of a schema.
	Low struct{}
)

// Schema is nil.
func (*SchemaProxy) Schema() *Schema { return nil }

// IsA is false.
func (*SchemaOrBool) IsA() bool { return false }

// GoLow is nil.
func (*Schema) GoLow() *Low { return nil }

// Hash is 0.
func (*Low) Hash() uint64 { return 0 }

// MarshalJSONInline returns nothing.
func (*Schema) MarshalJSONInline() ([]byte, error) { return nil, nil }
