// The webhook server of cert-manager with the flags of its published program, which no Go module contains
// (cmd/webhook/app/webhook.go).
package main

import (
	"os"

	"github.com/cert-manager/cert-manager/internal/webhook"
	"github.com/cert-manager/cert-manager/pkg/logs"
	"github.com/cert-manager/cert-manager/pkg/webhook/options"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"
)

func main() {
	config, err := options.NewWebhookConfiguration()
	cobra.CheckErr(err)
	flags := pflag.NewFlagSet("webhook", pflag.ExitOnError)
	options.AddConfigFlags(flags, config)
	cobra.CheckErr(flags.Parse(os.Args[1:]))
	server, err := webhook.NewCertManagerWebhookServer(logs.Log, *config)
	cobra.CheckErr(err)
	cobra.CheckErr(server.Run(signals.SetupSignalHandler()))
}
