// The controllers of cert-manager for certificates of self-signed and CA issuers. Its published program, which
// no Go module contains (cmd/controller/app/controller.go), starts those of ACME, Vault and Venafi as well.
package main

import (
	"os"
	"time"

	"github.com/cert-manager/cert-manager/pkg/controller"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	_ "github.com/cert-manager/cert-manager/pkg/controller/clusterissuers"
	_ "github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"
)

func main() {
	group, ctx := errgroup.WithContext(signals.SetupSignalHandler())
	options := controller.ContextOptions{Kubeconfig: os.Getenv("KUBECONFIG")}
	options.ClusterResourceNamespace = os.Getenv("POD_NAMESPACE")
	// Its defaults: internal/apis/config/controller/v1alpha1/defaults.go
	options.CertificateRequestMinimumBackoffDuration = time.Hour
	options.CertificateRequestMaximumBackoffDuration = 32 * time.Hour
	factory, err := controller.NewContextFactory(ctx, options)
	cobra.CheckErr(err)
	own, err := factory.Build()
	cobra.CheckErr(err)
	for _, create := range controller.Known() {
		made, err := create(factory)
		cobra.CheckErr(err)
		group.Go(func() error { return made.Run(1, ctx) })
	}
	own.SharedInformerFactory.Start(ctx.Done())
	own.KubeSharedInformerFactory.Start(ctx.Done())
	cobra.CheckErr(group.Wait())
}
