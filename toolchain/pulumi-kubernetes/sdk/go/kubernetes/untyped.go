// Package kubernetes has the one type of the Go SDK that the provider passes to RegisterResource.
package kubernetes

import (
	"reflect"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// UntypedArgs is an object of any kind.
type UntypedArgs map[string]any

// ElementType makes UntypedArgs an input of Pulumi.
func (UntypedArgs) ElementType() reflect.Type {
	return reflect.TypeOf((*map[string]any)(nil)).Elem()
}

var _ pulumi.Input = UntypedArgs{}
