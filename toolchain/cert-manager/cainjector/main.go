// The controllers of cert-manager that write CA bundles into webhook configurations, CRDs and APIServices, as
// its published program does, which no Go module contains (cmd/cainjector/app/controller.go).
package main

import (
	"github.com/cert-manager/cert-manager/pkg/api"
	"github.com/cert-manager/cert-manager/pkg/controller/cainjector"
	"github.com/cert-manager/cert-manager/pkg/util"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apiext "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func main() {
	ctrl.SetLogger(zap.New())
	ctx := ctrl.SetupSignalHandler()
	for _, add := range []func(*runtime.Scheme) error{api.AddToScheme, apiext.AddToScheme, apireg.AddToScheme} {
		cobra.CheckErr(add(scheme.Scheme))
	}
	config := util.RestConfigWithUserAgent(ctrl.GetConfigOrDie(), "cainjector") // of the file in KUBECONFIG
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  scheme.Scheme,
		Metrics: server.Options{BindAddress: "0"},
		// Secrets are watched as metadata alone, and read when needed.
		Client: client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
	})
	cobra.CheckErr(err)
	options := cainjector.SetupOptions{EnableCertificatesDataSource: true, EnabledReconcilersFor: map[string]bool{
		cainjector.MutatingWebhookConfigurationName:   true,
		cainjector.ValidatingWebhookConfigurationName: true,
		cainjector.CustomResourceDefinitionName:       true,
		cainjector.APIServiceName:                     true,
	}}
	cobra.CheckErr(cainjector.RegisterAllInjectors(ctx, manager, options))
	cobra.CheckErr(manager.Start(ctx))
}
